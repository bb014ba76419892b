"""The other backend against the same walks, where its library is installed (the extra `xgrammar`)."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.tool_calls import tool_calls_tag
from tests.structured.test_tool_calls import TOOLS, WEATHER, check, read_back, tool, written
from tests.support.form_walker import FormWalker, json_texts
from tests.support.json_schemas import instances, schemas

pytest.importorskip("xgrammar", reason="the extra xgrammar is not installed")

FEW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
END = "<|im_end|>"


def walker(**form: Any) -> FormWalker:
    return FormWalker(StructuredOutputsParams(**form), backend="xgrammar")


def offered(schema: dict[str, Any]) -> FormWalker:
    """The schema's form; examples that the library does not offer are left out."""
    if "Length" in json.dumps(schema):
        reject()
    return walker(json=schema)


@FEW
@given(schemas(), st.integers(0, 10**6))
def test_every_random_output_matches_its_schema(schema: dict[str, Any], seed: int) -> None:
    form = offered(schema)
    for i in range(3):
        jsonschema.validate(json.loads(form.random_walk(seed + i)), schema, jsonschema.Draft202012Validator)


@FEW
@given(st.data())
def test_matching_values_may_be_written_with_spaces_or_indented(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    value = data.draw(instances(schema))
    form = offered(schema)
    for text in json_texts(value)[1:]:  # characters as they are
        assert form.accepts(text) or "\\u" in text, text


@FEW
@given(st.data())
def test_no_value_of_another_schema_gets_through(data: st.DataObject) -> None:
    schema, other = data.draw(schemas()), data.draw(schemas())
    value = data.draw(instances(other))
    if not jsonschema.Draft202012Validator(schema).is_valid(value):
        assert not offered(schema).accepts(json.dumps(value))


@pytest.mark.parametrize(
    ("schema", "wrong"),
    [
        ({"type": "integer", "exclusiveMinimum": 3, "maximum": 7}, ["3", "8"]),
        ({"type": "number", "minimum": 0.5, "exclusiveMaximum": 2}, ["0.4", "2", "-1"]),
        ({"type": "string", "pattern": "^(a|b)?[x0]$"}, ['"a"', '"xc"']),
        ({"type": "string", "format": "date"}, ['"tomorrow"']),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, ['["a"]', "[1, 2]"]),
        ({"type": "array", "minItems": 1, "maxItems": 2}, ["[]", "[1, 2, 3]"]),
        ({"enum": [1, "a", None]}, ["2", '"b"', "true"]),
    ],
)
def test_keywords_are_kept(schema: dict[str, Any], wrong: list[str]) -> None:
    form = walker(json=schema)
    for text in wrong:
        assert not form.accepts(text)
    for seed in range(10):
        jsonschema.validate(json.loads(form.random_walk(seed)), schema)


@pytest.mark.parametrize(
    "form",
    [
        {"json": {"type": "integer", "multipleOf": 3}},
        {"json": {"allOf": [{"type": "integer"}, {"minimum": 3}]}},
        {"json": {"anyOf": [{"type": "string"}, {"type": "null"}], "maxLength": 3}},
        {"json": {"type": "string", "minLength": 3}},
        {"json": {"type": "string", "maxLength": 3}},
        {"json": {"type": "string", "pattern": "a", "format": "date"}},
        {"json": {"type": "string", "pattern": "(?=a)b"}},
        {"json": {"type": "object", "minProperties": 1}},
        {"json": {"type": "objct"}},
        {"json": {"not": {}}},
        {"json": {"const": float("nan")}},
        {"regex": "(?=a)b"},
        {"regex": "a^b"},
        {"regex": "("},
        {"choice": []},
        {"grammar": 'start: "a"'},
        {"grammar": "root ::= y"},
        {"json_object": True, "whitespace_pattern": " "},
        {"json_object": True, "disable_any_whitespace": True},
        {"structural_tag": {"format": {"type": "any_text"}}},
        {"structural_tag": {"triggers": ["<a>"], "structures": [{"begin": "<a>", "schema": {}, "end": ""}]}},
    ],
)
def test_what_is_not_offered_or_wrong_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(StructuredOutputError):
        walker(**form)


def test_messages_of_the_library_name_the_fault_alone() -> None:
    with pytest.raises(StructuredOutputError, match="^The form cannot be followed: Regex parsing error"):
        walker(regex="(")


def test_api_058_whitespace_is_bounded_and_nothing_follows_the_last_brace() -> None:
    form = walker(json_object=True)
    assert form.allowed("{}") == {END}
    assert not form.begins(" {")
    assert form.begins("{" + " " * 32 + '"')
    assert not form.begins("{" + " " * 33)


@pytest.mark.parametrize("pattern", [r"[a-z]{2,4}\d?", "(yes|no)( sir)?", "a/b", "é+", ".{2}"])
def test_expressions(pattern: str) -> None:
    form = walker(regex=pattern)
    for seed in range(10):
        assert re.fullmatch(pattern, form.random_walk(seed))


@pytest.mark.parametrize("pattern", ["b", "^b", "b$", "^a|b$", "^(a^)$", "^(?=a)a$", "^a$b$"])
def test_patterns_that_are_searched_for_are_refused(pattern: str) -> None:
    with pytest.raises(StructuredOutputError, match=r"patterns other than|refused at \$\.pattern"):
        walker(json={"type": "string", "pattern": pattern})


def test_choices_and_grammars() -> None:
    form = walker(choice=["a", "ab"])
    assert form.allowed("a") == {"b", END}
    grammar = walker(grammar='root ::= "(" root ")" | [0-9]+')
    assert grammar.accepts("((12))")
    assert not grammar.accepts("((12)")


def test_texts_hold_no_token_that_is_no_text() -> None:
    for form in (walker(json={"type": "string"}), walker(regex='".*')):
        assert form.begins('"a')
        assert not form.begins('"a<tool_call>')


def test_required_calls_in_hermes_are_read_back() -> None:
    tag = tool_calls_tag([TOOLS[0], *TOOLS[2:]], "hermes", is_required=True, is_parallel=True)
    form = FormWalker(tag, backend="xgrammar")
    for seed in range(30):
        check(read_back(form.random_walk(seed), TOOLS, "hermes"), TOOLS)
    assert form.allowed("") == {"<tool_call>"}
    call = written("get_weather", {"city": "Oslo"}, "hermes")
    assert form.accepts(f"{call}\n{call}")
    assert not form.accepts(written("get_weather", {"days": 3}, "hermes"))


def test_calls_or_an_answer() -> None:
    answer = StructuredOutputsParams(json={"type": "integer"})
    tag = tool_calls_tag([tool("f", WEATHER)], "hermes", is_required=False, is_parallel=False, answer=answer)
    form = FormWalker(tag, backend="xgrammar")
    assert form.accepts("42")
    assert form.accepts(written("f", {"city": "Oslo"}, "hermes"))


@pytest.mark.parametrize(("call_format", "is_required"), [("qwen3_xml", True), ("hermes", False)])
def test_calls_between_xml_tags_and_in_free_text_are_refused(call_format: str, is_required: bool) -> None:
    tag = tool_calls_tag(TOOLS, call_format, is_required=is_required, is_parallel=True)
    with pytest.raises(StructuredOutputError, match="guidance"):
        FormWalker(tag, backend="xgrammar")
