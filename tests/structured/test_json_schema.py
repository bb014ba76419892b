"""JSON schemas as forms: what they let through, what is refused and where."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.json_schema import MAX_DEPTH, SchemaDocument
from tests.support.form_walker import FormWalker, json_texts
from tests.support.json_schemas import instances, schemas

FEW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


def walker(schema: Any, **options: Any) -> FormWalker:
    return FormWalker(StructuredOutputsParams(json=schema, **options))


def prepared(schema: Any, **options: Any) -> Any:
    return SchemaDocument(schema, **options).prepared()


@FEW
@given(schemas(), st.integers(0, 10**6))
def test_every_random_output_matches_its_schema(schema: dict[str, Any], seed: int) -> None:
    form = walker(schema)
    for i in range(3):
        text = form.random_walk(seed + i)
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)


@FEW
@given(st.data())
def test_every_matching_value_may_be_written_with_spaces_or_indented(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    value = data.draw(instances(schema))
    jsonschema.validate(value, schema, jsonschema.Draft202012Validator)
    form = walker(schema)
    for text in json_texts(value):
        assert form.accepts(text), text


@FEW
@given(st.data())
def test_no_value_of_another_schema_gets_through(data: st.DataObject) -> None:
    schema, other = data.draw(schemas()), data.draw(schemas())
    value = data.draw(instances(other))
    is_valid = jsonschema.Draft202012Validator(schema).is_valid(value)
    if not is_valid:
        assert not walker(schema).accepts(json.dumps(value))


WRONG = [
    ({"properties": {"foo": "bar"}}, r"\$\.properties\.foo: it is no schema"),
    ({"type": "objct"}, r"\$\.type: 'objct' is no type"),
    ({"type": []}, r"\$\.type"),
    ({"type": 5}, r"\$\.type"),
    ({"items": {"minItems": 3, "maxItems": 2}}, r"\$\.items: minItems \(3\) is greater than maxItems \(2\)"),
    ({"minLength": 3, "maxLength": 2}, "minLength"),
    ({"minimum": 3, "maximum": 2}, "minimum"),
    ({"enum": []}, r"\$\.enum"),
    ({"enum": "a"}, r"\$\.enum"),
    ({"$ref": "#/$defs/nowhere"}, r"\$\.\$ref: '#/\$defs/nowhere' leads nowhere"),
    ({"$ref": "https://example.com/x.json"}, "not fetched"),
    ({"$ref": "#missing"}, "not in this schema"),
    ({"$ref": 5}, r"\$\.\$ref"),
    ({"properties": [1]}, r"\$\.properties"),
    ({"required": "a"}, r"\$\.required"),
    ({"required": [1]}, r"\$\.required"),
    ({"anyOf": []}, r"\$\.anyOf"),
    ({"allOf": {}}, r"\$\.allOf"),
    ({"minLength": -1}, r"\$\.minLength"),
    ({"maxItems": 1.5}, r"\$\.maxItems"),
    ({"maxItems": float("inf")}, r"\$\.maxItems"),
    ({"maxItems": True}, r"\$\.maxItems"),
    ({"multipleOf": 0}, r"\$\.multipleOf"),
    ({"minimum": "5"}, r"\$\.minimum"),
    ({"minimum": 1e300}, r"\$\.minimum"),
    ({"pattern": 5}, r"\$\.pattern"),
    ({"const": float("nan")}, "what JSON cannot"),
    ({"const": {1, 2}}, "what JSON cannot"),
    ({"items": 5}, r"\$\.items"),
    ({"items": [{}, 5]}, r"\$\.items\.1"),
    ({"anyOf": [{"type": "string"}, {"properties": {"a/b": None}}]}, r"\$\.anyOf\.1\.properties\.a/b"),
    ("{", "not JSON"),
    ("5", "it is no schema"),
    ("[" * 5000, "not JSON"),
]


@pytest.mark.parametrize(("schema", "message"), WRONG)
def test_api_056_a_wrong_schema_is_refused_with_the_place_of_its_fault(schema: Any, message: str) -> None:
    with pytest.raises(StructuredOutputError, match=message):
        walker(schema)


@pytest.mark.parametrize("pattern", ["(", "(?=a)b", "(?<=a)b", r"(a)\1", r"\bword\b", "a^b"])
def test_api_056_a_pattern_that_cannot_be_followed_is_refused(pattern: str) -> None:
    with pytest.raises(StructuredOutputError):
        walker({"type": "string", "pattern": pattern})


UNSUPPORTED = [
    {"not": {"type": "string"}},
    {"if": {}, "then": {"type": "string"}},
    {"type": "array", "uniqueItems": True},
    {"contains": {"type": "string"}},
    {"propertyNames": {"maxLength": 3}},
    {"dependentRequired": {"a": ["b"]}},
    {"dependentSchemas": {"a": {"type": "object"}}},
    {"unevaluatedProperties": False, "allOf": [{"properties": {"a": {}}}]},
    {"$dynamicRef": "#x"},
]


@pytest.mark.parametrize("schema", UNSUPPORTED)
def test_a_keyword_that_cannot_be_enforced_is_refused_by_name(schema: dict[str, Any]) -> None:
    with pytest.raises(
        StructuredOutputError, match=f"the keyword '{re_escape(next_unsupported(schema))}' cannot"
    ):
        walker({"type": "object", "properties": {"p": schema}})


@pytest.mark.parametrize("schema", UNSUPPORTED)
def test_a_lenient_reading_leaves_such_keywords_out(schema: dict[str, Any]) -> None:
    assert next_unsupported(schema) not in prepared(schema, is_lenient=True)


def next_unsupported(schema: dict[str, Any]) -> str:
    return next(keyword for keyword in schema if keyword not in ("type", "allOf"))


def re_escape(text: str) -> str:
    return text.replace("$", r"\$")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "uniqueItems": True},
        {"type": "array", "uniqueItems": False},
        {"type": "array", "uniqueItems": True, "maxItems": 1},
        {"not": False},
        {"if": {"type": "string"}},
        {"then": {"type": "string"}},
        {"propertyNames": {"type": "string"}},
        {"dependentRequired": {}},
        {"unevaluatedProperties": True},
        {"minContains": 2},
        {"type": "string", "format": "iban"},
        {"type": "string", "format": "x-anything"},
        {"title": "T", "description": "D", "default": 1, "examples": [{}], "x-own": {"type": "objct"}},
        {"$defs": {"Unused": {"type": "objct"}}},
        {"nullable": True, "type": "string"},
    ],
)
def test_keywords_that_cannot_matter_are_no_fault(schema: dict[str, Any]) -> None:
    walker(schema)


def test_a_known_format_is_enforced_and_an_unknown_one_says_nothing() -> None:
    assert walker({"type": "string", "format": "date"}).accepts('"2026-11-29"')
    assert not walker({"type": "string", "format": "date"}).accepts('"tomorrow"')
    assert walker({"type": "string", "format": "iban"}).accepts('"anything"')


@pytest.mark.parametrize(
    "schema",
    [
        False,
        "false",
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"anyOf": [{"$ref": "#"}, False]},
        {"allOf": [{"type": "integer"}, {"type": "string"}]},
        {"type": "string", "pattern": "^a$", "minLength": 2},
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
    ],
)
def test_a_schema_that_nothing_matches_is_refused(schema: Any) -> None:
    with pytest.raises(StructuredOutputError):
        walker(json.dumps(schema) if schema is False else schema)


def test_the_root_may_be_true() -> None:
    assert walker("true").accepts('{"a": [1, null, "x"]}')
    assert walker({}).accepts("5")


def test_recursion_through_references_has_no_bound() -> None:
    tree = {
        "$ref": "#/$defs/Node",
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                },
                "required": ["v"],
                "additionalProperties": False,
            }
        },
    }
    form = walker(tree)
    deep: dict[str, Any] = {"v": 0}
    for i in range(30):
        deep = {"v": i, "children": [deep, {"v": 1}]}
    assert form.accepts(json.dumps(deep))
    assert not form.accepts('{"v": 1, "children": [{"v": "1"}]}')
    for seed in range(5):
        jsonschema.validate(json.loads(form.random_walk(seed)), tree)


@pytest.mark.parametrize(
    ("reference", "more"),
    [
        ("#/$defs/N", {"$defs": {"N": {"type": "integer"}}}),
        ("#/definitions/N", {"definitions": {"N": {"type": "integer"}}}),
        ("#/properties/b", {}),
        ("#/$defs/a~1b%25", {"$defs": {"a/b%": {"type": "integer"}}}),
        ("#whole", {"$defs": {"N": {"$anchor": "whole", "type": "integer"}}}),
        ("urn:n", {"$defs": {"N": {"$id": "urn:n", "type": "integer"}}}),
        ("urn:root#/properties/b", {"$id": "urn:root"}),
    ],
)
def test_references_within_the_schema_are_followed(reference: str, more: dict[str, Any]) -> None:
    properties = {"a": {"$ref": reference, "description": "says nothing"}, "b": {"type": "integer"}}
    form = walker({"type": "object", "properties": properties, "required": ["a"], **more})
    assert form.accepts('{"a": 5}')
    assert not form.accepts('{"a": "5"}')


KINDS = {
    "$defs": {
        "Cat": {
            "type": "object",
            "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
            "required": ["kind"],
        },
        "Dog": {"type": "object", "properties": {"kind": {"enum": ["dog", "wolf"]}}, "required": ["kind"]},
    },
    "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}, {"type": "null"}],
    "discriminator": {"propertyName": "kind"},
}


def test_one_of_schemas_that_exclude_each_other_may_be_chosen_freely() -> None:
    form = walker(KINDS)
    assert form.accepts('{"kind": "cat", "lives": 9}')
    assert form.accepts('{"kind": "wolf"}')
    assert form.accepts("null")
    assert not form.accepts('{"kind": "cow"}')


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"type": "string"}, {"type": "integer"}),
        ({"const": 1}, {"const": 2}),
        ({"const": True}, {"const": 1}),
        ({"type": "number", "maximum": 3}, {"type": "number", "minimum": 4}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "boolean"}),
        ({"allOf": [{"type": "string"}]}, {"type": "boolean"}),
    ],
)
def test_one_of_is_any_of_where_no_value_matches_both(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert prepared({"oneOf": [first, second]})["anyOf"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"type": "integer"}, {"type": "number"}),
        ({"type": "object"}, {"type": "object", "required": ["a"]}),
        ({"type": "string", "pattern": "a"}, {"type": "string"}),
        ({}, {"type": "string"}),
        ({"required": ["a"]}, {"required": ["b"]}),
    ],
)
def test_one_of_schemas_that_may_both_match_is_refused(first: dict[str, Any], second: dict[str, Any]) -> None:
    with pytest.raises(StructuredOutputError, match="anyOf"):
        walker({"oneOf": [first, second]})


@FEW
@given(schemas(), schemas(), st.data())
def test_no_value_matches_two_schemas_that_are_said_to_exclude_each_other(
    first: dict[str, Any], second: dict[str, Any], data: st.DataObject
) -> None:
    try:
        prepared({"oneOf": [first, second]})
    except StructuredOutputError:
        return
    value = data.draw(instances(first))
    assert not jsonschema.Draft202012Validator(second).is_valid(value)


def test_api_058_whitespace_is_bounded_and_nothing_follows_the_last_brace() -> None:
    for schema in ({"type": "object"}, {"type": "object", "properties": {"a": {"type": "array"}}}):
        form = walker(schema)
        assert form.allowed("{}") == {"<|im_end|>"}
        assert not form.begins(" {")
        assert form.begins('{\n    "a"')
        assert form.begins('{ "a": [\n' + " " * 31)
        assert not form.begins('{ "a": [\n' + " " * 32)
        assert not form.begins('{  "')
        assert not form.begins('{\n\n"')
        assert not form.begins('{"a":\n\n')


def test_whitespace_may_be_forbidden_or_described() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert not walker(schema, disable_any_whitespace=True).accepts('{"a": 1}')
    assert walker(schema, disable_any_whitespace=True).accepts('{"a":1}')
    described = walker(schema, whitespace_pattern="[\\t]{0,2}")
    assert described.accepts('{\t\t"a":\t1}')
    assert not described.accepts('{"a": 1}')


def test_a_schema_cannot_loosen_its_own_form() -> None:
    form = walker({"type": "object", "x-guidance": {"whitespace_flexible": True, "lenient": True}})
    assert not form.accepts("{   }")


def test_additional_properties_can_be_switched_off_at_every_level() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {}}}, "free": {"type": "object"}},
        "allOf": [{"properties": {"c": {"type": "integer"}}}],
    }
    closed = {
        "anyOf": [{"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}],
        "$defs": {"A": schema["properties"]["a"]},
    }
    form = walker(closed, disable_additional_properties=True)
    assert form.accepts('{"a": {"b": 1}}')
    assert not form.begins('{"x')
    assert not form.begins('{"a": {"b": 1, "x')
    joined = walker(schema, disable_additional_properties=True)
    assert joined.accepts('{"a": {"b": 1}, "free": {"any": 1}, "c": 5}')
    assert not joined.begins('{"a": {"b": 1, "x')


def test_properties_come_in_the_order_of_the_schema() -> None:
    form = walker({"type": "object", "properties": {"b": {}, "a": {}}, "additionalProperties": False})
    assert form.accepts('{"b": 1, "a": 2}')
    assert not form.begins('{"a": 2, "b')


def test_closing_what_is_unevaluated_is_understood_where_it_is_plain() -> None:
    assert (
        prepared({"properties": {"a": {}}, "unevaluatedProperties": False})["additionalProperties"] is False
    )
    assert prepared({"prefixItems": [{}], "unevaluatedItems": False})["items"] is False


def test_older_drafts_tuples_are_understood() -> None:
    form = walker(
        {"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False}
    )
    assert form.accepts('[1, "a"]')
    assert not form.begins('[1, "a",')


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for i in range(depth):
        branch = {"type": "object", "properties": {"k": {"const": i}, "v": schema}, "required": ["k", "v"]}
        schema = {"oneOf": [branch, {"type": "array", "items": schema}]}
    return schema


def chain(num_links: int) -> dict[str, Any]:
    links: dict[str, Any] = {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(num_links)}
    return {"$ref": "#/$defs/0", "$defs": {**links, str(num_links): {"type": "integer"}}}


def web(num_nodes: int) -> dict[str, Any]:
    def options(i: int) -> list[dict[str, str]]:
        return [{"$ref": f"#/$defs/{(i * 7 + j) % num_nodes}"} for j in range(9)]

    return {"$ref": "#/$defs/0", "$defs": {str(i): {"anyOf": options(i)} for i in range(num_nodes)}}


def tower(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


HOSTILE = {
    "tower": tower(5000),
    "chain": chain(3000),
    "web": web(400),
    "enum": {"enum": [f"item {i}" for i in range(10_000)]},
    "length": {"type": "string", "maxLength": 100_000},
    "items": {"type": "array", "maxItems": 2**31 - 1, "minItems": 2**31 - 1},
    "anyOf": {"anyOf": [{"required": [str(i)]} for i in range(3000)]},
    "oneOf": {"oneOf": [{"properties": {"k": {}}, "required": ["k"]} for _ in range(500)]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_perf_009_preparing_a_hostile_schema_ends_soon(name: str) -> None:
    started = time.process_time()
    with contextlib.suppress(StructuredOutputError):
        prepared(HOSTILE[name])
    assert time.process_time() - started < 20  # seconds of work; without bounds there would be no end


def test_perf_009_nested_alternatives_are_prepared() -> None:
    assert "oneOf" not in json.dumps(prepared(nested(8)))


def test_nesting_has_a_bound() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(MAX_DEPTH):
        schema = {"items": schema}
    with pytest.raises(StructuredOutputError, match="nested deeper"):
        walker(schema)


def test_names_and_constants_are_written_as_they_are_and_other_texts_also_with_escapes() -> None:
    form = walker({"type": "object", "properties": {"é": {"enum": ["ü", {"ö": 1}]}}, "required": ["é"]})
    assert form.accepts('{"é": "ü", "other é": "\\ud83d\\ude00"}')
    assert form.accepts('{"é": {"ö": 1}}')
    assert not form.begins('{"\\u00e9"')
    assert not form.begins('{"é": "ü", "\\ud83d"')


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"q": {"type": "string", "pattern": "(?=a)b"}}}, "$.properties.q.pattern"),
        ({"items": {"anyOf": [{"type": "null"}, {"pattern": "("}]}}, "$.items.anyOf.1.pattern"),
        ({"patternProperties": {"(?!a)": True}}, "$.patternProperties.(?!a)"),
    ],
)
def test_a_pattern_that_is_refused_is_named_with_its_place(schema: dict[str, Any], place: str) -> None:
    with pytest.raises(StructuredOutputError) as refusal:
        walker(schema)
    assert f"at {place}: regex parse error" in refusal.value.message
