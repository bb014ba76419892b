"""Forms of tool calls: whatever they let through is read back by the server with arguments that match the schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.server.tools.parser import CallFormat, parser_factory
from qanat.server.tools.state import CallState
from qanat.structured.tool_calls import tool_calls_tag
from tests.support.form_walker import FormWalker
from tests.support.json_schemas import closed, instances, schemas

FEW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
FORMATS = {"hermes": CallFormat.HERMES, "qwen3_xml": CallFormat.XML}
BOTH = pytest.mark.parametrize("call_format", FORMATS)

Calls = list[tuple[str, dict[str, Any]]]


def tool(name: str, parameters: Mapping[str, Any] | None = None, *, is_strict: bool = True) -> dict[str, Any]:
    own = {} if parameters is None else {"parameters": parameters}
    return {"type": "function", "function": {"name": name, "strict": is_strict, **own}}


def form(
    tools: list[dict[str, Any]], call_format: str, *, has_tags: bool = True, **options: Any
) -> FormWalker:
    wanted = {"is_required": True, "is_parallel": True, **options}
    return FormWalker(tool_calls_tag(tools, call_format, **wanted), has_tags=has_tags)


def read_back(text: str, tools: list[dict[str, Any]], call_format: str) -> Calls:
    """The calls as the server's readers see them; texts between them are left out."""
    make_parser = parser_factory(FORMATS[call_format], tools)
    calls: Calls = []
    for piece in text.split("<tool_call>")[1:]:
        parser = make_parser()
        parser.push(piece.rpartition("</tool_call>")[0])
        if parser.state is CallState.OPEN:
            parser.close()
        assert parser.state is CallState.DONE, piece
        assert not parser.rest.strip()
        calls.append((parser.name, json.loads(parser.take_arguments())))
    return calls


def dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def written(name: str, arguments: dict[str, Any], call_format: str) -> str:
    """A call as the models' chat templates write it."""
    if call_format == "hermes":
        body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
        return f"<tool_call>\n{body}\n</tool_call>"
    values = {key: value if isinstance(value, str) else dumped(value) for key, value in arguments.items()}
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "where"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "units": {"enum": ["C", "F"]},
    },
    "required": ["city"],
}
MIXED = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "number_or_null": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "text_or_null": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "flag": {"type": ["boolean", "null"]},
        "scalar": {"type": ["string", "number", "boolean", "null"]},
        "nested": {"$ref": "#/$defs/Node"},
        "text_or_nested": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Node"}, {"type": "array"}]},
        "choice": {"enum": ["a", "1", 1, None, "null", "true"]},
        "short": {"type": "string", "minLength": 2, "maxLength": 4},
        "pattern": {"type": "string", "pattern": "^a+$|x"},
        "bounded": {"type": ["integer", "string"], "minimum": 3},
        "items": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "anything": {},
    },
    "required": ["text", "nested"],
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}},
            "required": ["name"],
        }
    },
}
TOOLS = [tool("get_weather", WEATHER), tool("mixed", MIXED), tool("now"), tool("write", {"type": "object"})]


def check(calls: Calls, tools: list[dict[str, Any]]) -> None:
    parameters = {t["function"]["name"]: t["function"].get("parameters", {"maxProperties": 0}) for t in tools}
    for name, arguments in calls:
        assert isinstance(arguments, dict)
        jsonschema.validate(arguments, parameters[name], jsonschema.Draft202012Validator)


@BOTH
@pytest.mark.parametrize("has_tags", [True, False])
def test_every_random_call_is_read_back_with_arguments_of_the_schema(
    call_format: str, has_tags: bool
) -> None:
    walker = form(TOOLS, call_format, has_tags=has_tags)
    called = set()
    for seed in range(60):
        calls = read_back(walker.random_walk(seed), TOOLS, call_format)
        assert calls
        check(calls, TOOLS)
        called |= {name for name, _ in calls}
    assert called == {"get_weather", "mixed", "now", "write"}


@FEW
@given(schemas(is_object=True), st.integers(0, 10**6), st.sampled_from(sorted(FORMATS)))
def test_random_schemas_are_kept_by_random_calls(schema: dict[str, Any], seed: int, call_format: str) -> None:
    tools = [tool("f", schema)]
    try:
        walker = form(tools, call_format)
    except StructuredOutputError:
        assert call_format == "qwen3_xml"  # a required value may have no spelling there
        return
    for i in range(3):
        check(read_back(walker.random_walk(seed + i), tools, call_format), tools)


@FEW
@given(st.data())
def test_every_call_with_matching_arguments_may_be_written_in_hermes(data: st.DataObject) -> None:
    schema = data.draw(schemas(is_object=True))
    arguments = data.draw(instances({"additionalProperties": False, **schema}))
    assert form([tool("f", schema)], "hermes").accepts(written("f", arguments, "hermes"))


@FEW
@given(st.data())
def test_every_call_that_reads_back_the_same_may_be_written_in_xml(data: st.DataObject) -> None:
    schema = closed(data.draw(schemas(is_object=True)))  # objects between tags have only what they list
    tools = [tool("f", schema)]
    arguments = data.draw(instances(schema))
    text = written("f", arguments, "qwen3_xml")
    assume("<" not in str(arguments))  # keys inside JSON have none there, and texts no closing tag
    try:
        is_same = read_back(text, tools, "qwen3_xml") == [("f", arguments)]
    except AssertionError:
        is_same = False
    assume(is_same)
    assert form(tools, "qwen3_xml").accepts(text), text


@BOTH
def test_api_039_a_closing_tag_inside_a_text_is_text(call_format: str) -> None:
    walker = form(TOOLS, call_format, has_tags=False)
    for seed in range(20):
        check(read_back(walker.random_walk(seed), TOOLS, call_format), TOOLS)
    inside = 'use </tool_call> to end "it" \\ '
    text = written("get_weather", {"city": inside}, call_format)
    assert walker.accepts(text)
    assert read_back(text, TOOLS, call_format) == [("get_weather", {"city": inside})]


UNREADABLE = {
    "flag": ["yes", "5", '"true"'],
    "number_or_null": ["5.5", "five", '"5"', "1e3"],
    "nested": ["{}", "[1]", '{"name": 5}', "null", '{"name": "</parameter>"}'],
    "choice": ["b", "2", "True"],
    "short": ["a", "abcde"],
    "pattern": ["ab", "aa b"],
    "bounded": ["2", "-7", "5 pieces"],
    "items": ['["a", 5]', '["a", "b", "c", "d"]', "a"],
    "text": ["a</parameter>b"],
    "scalar": ["</parameter>"],
    "text_or_nested": ["{", "[1, 2", '{"name": 5}', " {}"],
}
READABLE = {
    "flag": ["true", "false", "null"],
    "number_or_null": ["5", "-12", "null"],
    "text_or_null": ["null", "nulls", "", "None of it"],
    "nested": ['{"name": "a", "next": {"name": "b < c </p"}}', '{"name":"a"}'],
    "choice": ["a", "1", "null"],
    "short": ["ab", "äöüß"],
    "pattern": ["aaa", "box"],
    "bounded": ["3", "many"],
    "items": ["[]", '["a", "b"]'],
    "text": [
        "",
        "\n",
        "two\nlines\n",
        "5",
        "true",
        "{",
        '<parameter=x>\n"',
        "</function>",
        "</parameter",
        "\t é 😀",
    ],
    "scalar": ["true", "-5.5e3", "null", "five", "5 apples", "2026-11-29", " spaced "],
    "text_or_nested": ["plain", '{"name": "a"}', "[1, {}]", "a {b}"],
    "anything": ["5", "{}", "free text"],
}


def call_of(parameter: str, value: str) -> str:
    """A call of `mixed` with this text as the value of one parameter."""
    values = {"text": "t", "nested": '{"name": "n"}', parameter: value}
    body = "".join(
        f"<parameter={key}>\n{values[key]}\n</parameter>\n" for key in MIXED["properties"] if key in values
    )
    return f"<tool_call>\n<function=mixed>\n{body}</function>\n</tool_call>"


@pytest.mark.parametrize(("parameter", "value"), [(k, v) for k, values in READABLE.items() for v in values])
def test_api_042_values_of_every_type_may_be_written(parameter: str, value: str) -> None:
    text = call_of(parameter, value)
    check(read_back(text, TOOLS, "qwen3_xml"), TOOLS)
    assert form(TOOLS, "qwen3_xml").accepts(text)


@pytest.mark.parametrize(("parameter", "value"), [(k, v) for k, values in UNREADABLE.items() for v in values])
def test_api_042_what_would_read_back_as_another_type_cannot_be_written(parameter: str, value: str) -> None:
    assert not form(TOOLS, "qwen3_xml").accepts(call_of(parameter, value))


UNIONS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": ["string", "null"]},
    {"type": "string", "nullable": True},
    {"type": ["string", "boolean"]},
    {"type": ["string", "integer"]},
    {"type": ["string", "number", "null"]},
    {"type": ["string", "integer"], "minimum": 3},
    {"type": ["integer", "null"]},
    {"type": "number"},
    {"type": "boolean"},
    {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "object", "required": ["a"]}]},
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
    {"oneOf": [{"type": "string", "pattern": "^[0-9n]"}, {"type": "integer"}]},
    {"enum": ["null", None, "5", 5, True, "{}", " a "]},
    {"const": "none"},
    {"anyOf": [{"const": "5"}, {"type": "null"}]},
    {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    {"type": "array", "items": {"type": "string"}},
    {},
]
PIECES = [
    "null",
    "None",
    "NULL",
    "true",
    "False",
    "5",
    "-0",
    "1e5",
    "2.5",
    "{",
    "}",
    "[",
    "]",
    '"',
    '"a"',
    ": ",
    ", ",
]
PIECES += [
    "{}",
    "[1]",
    '{"a": 1}',
    " ",
    "\n",
    "\t",
    "\x1c",
    "\xa0",
    "a",
    "é",
    "<",
    "</parameter",
    ">",
    "</parameter>",
    "\\",
]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(UNIONS), st.lists(st.sampled_from(PIECES), max_size=5))
def test_whatever_may_be_written_reads_back_with_a_type_of_the_schema(
    schema: dict[str, Any], pieces: list[str]
) -> None:
    tools = [tool("f", {"type": "object", "properties": {"p": schema}})]
    text = f"<tool_call>\n<function=f>\n<parameter=p>\n{''.join(pieces)}\n</parameter>\n</function>\n</tool_call>"
    if form(tools, "qwen3_xml").accepts(text):
        check(read_back(text, tools, "qwen3_xml"), tools)


def test_no_nested_text_or_key_holds_the_tag_that_closes_the_parameter() -> None:
    free = {"type": "object", "properties": {"o": {"type": "object"}, "a": {"type": "array"}}}
    walker = form([tool("f", free)], "qwen3_xml")
    opening = "<tool_call>\n<function=f>\n<parameter=o>\n"
    assert walker.begins(opening + '{"k": {"a": ["</p", "<</paramete>", "<</"')
    for inner in (
        '{"</parameter>"',
        '{"k": "</parameter>"',
        '{"k": [{"x": "a</parameter>"',
        '{"k": "<</parameter>"',
    ):
        assert not walker.begins(opening + inner)


@BOTH
def test_required_parameters_come_first_to_last_and_others_may_be_left_out(call_format: str) -> None:
    walker = form(TOOLS, call_format)
    assert walker.accepts(written("get_weather", {"city": "Oslo"}, call_format))
    assert walker.accepts(written("get_weather", {"city": "Oslo", "units": "C"}, call_format))
    assert not walker.accepts(written("get_weather", {"units": "C", "city": "Oslo"}, call_format))
    assert not walker.accepts(written("get_weather", {"units": "C"}, call_format))
    assert not walker.accepts(written("get_weather", {"city": "Oslo", "days": 15}, call_format))
    assert not walker.accepts(written("get_weather", {"city": "Oslo", "more": "x"}, call_format))
    assert not walker.accepts(written("unknown", {}, call_format))


@BOTH
def test_a_function_without_parameters_takes_none_and_one_with_an_open_object_any(call_format: str) -> None:
    tools = [tool("a"), tool("b", {"type": "object", "properties": {}}), tool("c", {"type": "object"})]
    walker = form(tools, call_format)
    for name in "abc":
        assert walker.accepts(written(name, {}, call_format))
        assert walker.accepts(written(name, {"x": "y"}, call_format)) == (name == "c")


@BOTH
def test_required_calls_are_the_whole_output(call_format: str) -> None:
    call = written("now", {}, call_format)
    several, one = form(TOOLS, call_format), form(TOOLS, call_format, is_parallel=False)
    assert several.accepts(f"{call}\n{call}")
    assert one.accepts(call)
    assert not one.begins(f"{call}\n")
    for walker in (several, one):
        assert not walker.begins("I")
        assert not walker.accepts("")
        assert walker.allowed("") == {"<tool_call>"}
    assert "<|im_end|>" in several.allowed(call)


@BOTH
def test_a_named_function_is_called_once_whatever_else_there_is(call_format: str) -> None:
    walker = form(TOOLS, call_format, only="now", is_parallel=False)
    assert walker.accepts(written("now", {}, call_format))
    assert not walker.begins(f"{written('now', {}, call_format)}\n")
    assert not walker.accepts(written("get_weather", {"city": "Oslo"}, call_format))


@BOTH
@pytest.mark.parametrize("has_tags", [True, False])
def test_where_calls_are_free_only_strict_functions_are_held_to_their_schemas(
    call_format: str, has_tags: bool
) -> None:
    tools = [tool("get_weather", WEATHER), tool("loose", WEATHER, is_strict=False)]
    walker = form(tools, call_format, has_tags=has_tags, is_required=False)
    good, wrong = {"city": "Oslo"}, {"days": "many"}
    assert walker.accepts("")
    assert walker.accepts("just text { } <tool_ </tool_call")
    call = written("get_weather", good, call_format)
    assert walker.accepts(f"text {call}\n{call} more text")
    assert walker.accepts(written("loose", wrong, call_format))
    assert not walker.accepts(written("get_weather", wrong, call_format))
    assert not walker.accepts(written("unknown", {}, call_format))
    single = form(tools, call_format, has_tags=has_tags, is_required=False, is_parallel=False)
    assert single.accepts(f"text {call}")
    assert not single.begins(f"text {call}\n")


ANSWERS = {
    '{"answer": 42}': StructuredOutputsParams(
        json={"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
    ),
    '{"free": [1]}': StructuredOutputsParams(json_object=True),
    "yes": StructuredOutputsParams(choice=["yes", "yes indeed", "no"]),
    "abb": StructuredOutputsParams(regex="ab+"),
    "((x))": StructuredOutputsParams(grammar='root ::= "(" root ")" | "x"'),
    "<a>5</a>": StructuredOutputsParams(
        structural_tag={
            "structures": [{"begin": "<a>", "schema": {"type": "integer"}, "end": "</a>"}],
            "triggers": ["<a>"],
        }
    ),
}


@BOTH
@pytest.mark.parametrize("text", ANSWERS)
def test_the_output_is_calls_or_an_answer_of_its_form(call_format: str, text: str) -> None:
    walker = form(TOOLS, call_format, is_required=False, answer=ANSWERS[text])
    call = written("get_weather", {"city": "Oslo"}, call_format)
    assert walker.accepts(text)
    assert walker.accepts(f"{call}\n{call}")
    assert not walker.accepts(written("get_weather", {"days": 3}, call_format))
    assert not walker.begins(f"{call}{text}")
    assert walker.accepts("neither{") == (text == "<a>5</a>")  # there text is free up to the tag


def test_the_options_of_the_answer_are_kept() -> None:
    answer = StructuredOutputsParams(json_object=True, disable_any_whitespace=True)
    walker = form(TOOLS, "hermes", is_required=False, answer=answer)
    assert walker.accepts('{"a":1}')
    assert not walker.accepts('{"a": 1}')


@BOTH
@pytest.mark.parametrize("has_tags", [True, False])
def test_a_choice_beside_tools_is_the_text_that_it_is_alone(call_format: str, has_tags: bool) -> None:
    answer = StructuredOutputsParams(choice=["<tool_call>", "a (b) [c] \n#é😀\\"])
    alone = FormWalker(answer, has_tags=has_tags)
    beside = form(TOOLS, call_format, is_required=False, answer=answer, has_tags=has_tags)
    for text in ("<tool_call>", "a (b) [c] \n#é😀\\"):
        # As text: the small vocabulary spells it byte by byte where it has no token of that name.
        assert beside.accepts(text) == alone.accepts(text) == (not has_tags or text[0] != "<")
    assert beside.begins("<tool_cal") and alone.begins("<tool_cal")


NESTED = {
    "type": "object",
    "properties": {"o": {"type": "object", "properties": {"k": {}, "l": {}}}},
    "required": ["o"],
}


def between_xml_tags(schema: dict[str, Any], **options: bool) -> FormWalker:
    content = {"type": "qwen_xml_parameter", "json_schema": schema}
    return FormWalker(
        StructuredOutputsParams(structural_tag={"type": "structural_tag", "format": content}, **options)
    )


def test_between_xml_tags_json_without_whitespace_has_none() -> None:
    loose, tight = between_xml_tags(NESTED), between_xml_tags(NESTED, disable_any_whitespace=True)
    plain, spaced = (
        f"<parameter=o>\n{value}\n</parameter>\n" for value in ('{"k":1,"l":2}', '{"k": 1, "l": 2}')
    )
    assert loose.accepts(plain) and loose.accepts(spaced)
    assert tight.accepts(plain) and not tight.accepts(spaced)


@pytest.mark.parametrize(
    ("schema", "is_open"),
    [
        (NESTED, False),
        ({"$ref": "#/$defs/A", "$defs": {"A": NESTED}}, False),
        ({**NESTED, "additionalProperties": True}, True),
        ({"allOf": [NESTED, {"properties": {"p": {}}}]}, True),
        ({"type": "object", "required": ["o"]}, True),
    ],
)
def test_between_xml_tags_further_parameters_may_be_switched_off(
    schema: dict[str, Any], is_open: bool
) -> None:
    text = '<parameter=o>\n{"k": 1}\n</parameter>\n'
    further = f"{text}<parameter=q>\n1\n</parameter>\n"
    assert between_xml_tags(schema).accepts(further)
    closed_too = between_xml_tags(schema, disable_additional_properties=True)
    assert closed_too.accepts(text)
    assert closed_too.accepts(further) == is_open


FAULTY: dict[str, dict[str, Any]] = {
    "pattern": {"type": "string", "pattern": "(?=x)"},
    "keyword": {"not": {"type": "null"}},
    "type": {"type": "objct"},
    "bounds": {"type": "string", "minLength": 3, "maxLength": 2},
}


@BOTH
@pytest.mark.parametrize("fault", FAULTY)
def test_a_faulty_strict_function_is_named(call_format: str, fault: str) -> None:
    answer = StructuredOutputsParams(json_object=True)
    faulty = tool("faulty", {"type": "object", "properties": {"a": FAULTY[fault]}})
    with pytest.raises(StructuredOutputError, match="function 'faulty'") as caught:
        form([*TOOLS, faulty], call_format, is_required=False, answer=answer)
    assert caught.value.param == "tools"


def test_a_function_whose_name_cannot_be_written_is_a_fault_of_the_tools() -> None:
    with pytest.raises(StructuredOutputError, match="a<b") as caught:
        form([tool("a<b")], "qwen3_xml")
    assert caught.value.param == "tools"


HARD = {
    "type": "object",
    "properties": {"a": {"type": "string", "pattern": "(?=x)"}, "b": {"not": {}}, "c": {"type": "objct"}},
    "required": ["d"],
    "minProperties": 1,
}


@BOTH
def test_a_strict_schema_that_cannot_be_followed_is_refused(call_format: str) -> None:
    with pytest.raises(StructuredOutputError):
        form([tool("f", HARD)], call_format)


@BOTH
@pytest.mark.parametrize(
    "schema",
    [
        HARD,
        {"type": "object", "properties": {"a": {"not": {"type": "null"}}}, "if": {}, "then": {}},
        {
            "type": "object",
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "properties": {"a": {}, "b": {}},
        },
        {
            "type": "object",
            "properties": {"a": {"type": "object", "minProperties": 1, "properties": {"k": {}}}},
        },
        {
            "type": "object",
            "properties": {"a": {"anyOf": [{"enum": [i]} for i in range(200)] + [{"type": "string"}]}},
        },
        {"type": "object", "properties": "none"},
        {"type": "object", "required": "all"},
    ],
)
def test_a_schema_that_is_not_strict_never_prevents_a_call(call_format: str, schema: dict[str, Any]) -> None:
    tools = [tool("f", schema, is_strict=False)]
    walker = form(tools, call_format)
    for seed in range(5):
        assert read_back(walker.random_walk(seed), tools, call_format)


LOOSE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": r"^(?!\s*$).+"},
        "both": {"type": "string", "pattern": "(^a$)"},
        "map": {
            "type": "object",
            "patternProperties": {"^a": {"type": "integer"}, "^ab": {}},
            "additionalProperties": False,
        },
        "few": {"type": "object", "properties": {"x": {}}, "maxProperties": 3},
        "days": {"type": "integer"},
    },
    "required": ["name", "days"],
}


@BOTH
def test_of_a_schema_that_is_not_strict_as_much_is_kept_as_can_be(call_format: str) -> None:
    walker = form([tool("f", LOOSE, is_strict=False)], call_format)
    arguments = {"name": "", "both": "b", "map": {"abc": 1}, "few": {"x": 1}, "days": 3}
    assert walker.accepts(written("f", arguments, call_format))
    assert not walker.accepts(written("f", {"name": "x"}, call_format))
    assert not walker.accepts(written("f", {"name": "x", "days": "many"}, call_format))
    with pytest.raises(StructuredOutputError):
        form([tool("f", LOOSE)], call_format)


@BOTH
def test_types_in_pythons_words_are_kept_where_a_schema_is_not_strict(call_format: str) -> None:
    properties = {"n": {"type": "float"}, "o": {"type": "DICT"}, "x": {"type": "datetime"}}
    schema = {"type": "dict", "properties": properties, "required": ["n", "o"]}
    tools = [tool("f", schema, is_strict=False)]
    arguments = {"n": 1.5, "o": {"k": 1}, "x": "soon"}
    text = written("f", arguments, call_format)
    assert form(tools, call_format).accepts(text)
    assert read_back(text, tools, call_format) == [("f", arguments)]
    for wrong in ({"n": "much", "o": {}}, {"n": 1, "o": "none"}, {"n": 1}):
        assert not form(tools, call_format).accepts(written("f", wrong, call_format))


def test_names_that_xml_cannot_hold_are_refused_or_left_out() -> None:
    with pytest.raises(StructuredOutputError, match="a<b"):
        form([tool("a<b")], "qwen3_xml")
    with pytest.raises(StructuredOutputError, match="cannot be written"):
        form([tool("f", {"properties": {"a>b": {}}, "required": ["a>b"]})], "qwen3_xml")
    walker = form([tool("f", {"properties": {"a>b": {}, "c": {}}})], "qwen3_xml")
    assert walker.accepts(written("f", {"c": "x"}, "qwen3_xml"))
    assert not walker.begins("<tool_call>\n<function=f>\n<parameter=a")


def test_parameters_may_be_composed() -> None:
    schema = {
        "allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
        "properties": {"a": {"maxLength": 2}},
        "$defs": {
            "Base": {
                "properties": {"a": {"type": "string"}},
                "required": ["a"],
                "additionalProperties": False,
            }
        },
    }
    walker = form([tool("f", schema)], "qwen3_xml")
    assert walker.accepts(written("f", {"a": "xy", "b": 5}, "qwen3_xml"))
    assert not walker.accepts(written("f", {"a": "xyz", "b": 5}, "qwen3_xml"))
    assert not walker.accepts(written("f", {"a": "xy"}, "qwen3_xml"))


def test_further_parameters_follow_the_schema_for_them() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "additionalProperties": {"type": "integer"},
    }
    walker = form([tool("f", schema)], "qwen3_xml")
    assert walker.accepts(written("f", {"a": "x", "abc": 1, "b": 2}, "qwen3_xml"))
    assert not walker.accepts(written("f", {"abc": "x"}, "qwen3_xml"))
    assert not walker.accepts(written("f", {"b": 1, "a": 2}, "qwen3_xml"))


@BOTH
def test_perf_009_128_tools_are_one_form(call_format: str) -> None:
    tools = [tool(f"tool_{i}", MIXED if i % 8 == 0 else WEATHER) for i in range(128)]
    walker = form(tools, call_format)
    assert walker.accepts(written("tool_127", {"city": "Oslo"}, call_format))
    check(read_back(walker.random_walk(1), tools, call_format), tools)
