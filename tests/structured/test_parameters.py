"""Types from schemas, and values of these types from text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.structured.parameters import STRING, json_of, parameter_types

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "pair": {"type": ["boolean", "null"]},
        "any": {"anyOf": [{"type": "integer"}, {"oneOf": [{"type": "array"}, {"$ref": "#/$defs/O"}]}]},
        "nullable": {"type": "number", "nullable": True},
        "ref": {"$ref": "#/$defs/O"},
        "loop": {"$ref": "#/$defs/Loop"},
        "lost": {"$ref": "#/$defs/Nowhere"},
        "far": {"$ref": "https://example.com/schema"},
        "enum": {"enum": [1, None, "a"]},
        "const": {"const": 2.5},
        "shape": {"properties": {"k": {}}},
        "items": {"items": {}},
        "free": {"description": "anything"},
        "all": {"allOf": [{"type": "integer"}, {"minimum": 0}]},
        "odd": 5,
        "python": {"type": "dict"},
        "several": {"type": ["float", "NoneType", "int"]},
        "loud": {"type": "ARRAY"},
        "other": {"type": "datetime"},
    },
    "allOf": [{"properties": {"deep": {"type": "boolean"}}}],
    "$defs": {"O": {"type": "object"}, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"type": "integer"}]}},
}


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("s", {"string"}),
        ("pair", {"boolean", "null"}),
        ("any", {"integer", "array", "object"}),
        ("nullable", {"number", "null"}),
        ("ref", {"object"}),
        ("loop", {"integer"}),
        ("lost", {"string"}),
        ("far", {"string"}),
        ("enum", {"integer", "null", "string"}),
        ("const", {"number"}),
        ("shape", {"object"}),
        ("items", {"array"}),
        ("free", {"string"}),
        ("all", {"integer"}),
        ("odd", {"string"}),
        ("deep", {"boolean"}),
        ("unknown", {"string"}),
        ("python", {"object"}),
        ("several", {"number", "null", "integer"}),
        ("loud", {"array"}),
        ("other", {"string"}),
    ],
)
def test_types_of_parameters(name: str, types: set[str]) -> None:
    assert parameter_types(SCHEMA, name) == types


def test_a_schema_that_refers_to_itself_from_everywhere_is_read() -> None:
    everywhere = [{"$ref": f"#/$defs/D{i}"} for i in range(1000)]
    definitions = {
        f"D{i}": {"anyOf": everywhere, "properties": {"a": {"anyOf": everywhere}}} for i in range(1000)
    }
    schema = {"anyOf": everywhere, "$defs": definitions, "properties": {"a": {"type": "integer"}}}
    assert "integer" in parameter_types(schema, "a")


def test_schemas_that_say_nothing_mean_text() -> None:
    for schema in (None, {}, {"properties": []}, {"properties": {"a": True}}):
        assert parameter_types(schema, "a") == STRING  # type: ignore[arg-type]


def test_additional_properties_type_undeclared_parameters() -> None:
    schema = {"properties": {"s": {"type": "string"}}, "additionalProperties": {"type": "integer"}}
    assert parameter_types(schema, "x") == {"integer"}
    assert parameter_types(schema, "s") == STRING


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("123", {"string"}, "123"),
        ("false", {"boolean", "null"}, False),
        ("True", {"boolean"}, True),
        ("null", {"string", "null"}, None),
        ("None", {"integer", "null"}, None),
        ("null", {"string"}, "null"),
        ("5", {"integer", "null"}, 5),
        ("5", {"string", "integer"}, 5),
        ("5a", {"string", "integer"}, "5a"),
        ("abc", {"integer"}, "abc"),
        ("05", {"integer"}, "05"),
        ("1.5", {"integer"}, "1.5"),
        ("-1.5e3", {"number"}, -1500.0),
        ("7", {"number"}, 7),
        ("NaN", {"number"}, "NaN"),
        ('{"k": [1, 2]}', {"object"}, {"k": [1, 2]}),
        ("[1,\n 2]", {"array"}, [1, 2]),
        ("[1, 2]", {"object"}, "[1, 2]"),
        ("{'k': True, 'n': None}", {"object"}, {"k": True, "n": None}),
        ("['it\\'s', \"it's\"]", {"array"}, ["it's", "it's"]),
        ('{"k": "two\nlines"}', {"object", "string"}, {"k": "two\nlines"}),
        ("{'k': }", {"object"}, "{'k': }"),
        ('{"k": ', {"object"}, '{"k": '),
        ("[" * 100_000, {"array"}, "[" * 100_000),
        ("9" * 5000, {"integer"}, None),
        ("", {"integer"}, ""),
        ("maybe", {"boolean"}, "maybe"),
        ("x", {"surprise"}, "x"),
    ],
    ids=range(28),
)
def test_values_keep_their_types(text: str, types: set[str], value: object) -> None:
    result = json_of(text, frozenset(types))
    if len(text) == 5000:  # longer than Python's own limit for whole numbers, but JSON all the same
        assert result == text
        return
    read = json.loads(result)
    assert (read, type(read)) == (value, type(value))


@given(
    st.text(), st.sets(st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"]))
)
def test_every_text_becomes_json_and_none_is_lost(text: str, types: set[str]) -> None:
    value = json.loads(json_of(text, frozenset(types)))
    if isinstance(value, str):
        assert value == text


def test_numbers_within_objects_may_be_larger_than_pythons() -> None:
    for value in ('{"a": 241e7756}', "[" + "9" * 5000 + "]"):
        assert json_of(value, frozenset({"object", "array"})) == value
    assert json_of('{"a": NaN}', frozenset({"object"})) == '"{\\"a\\": NaN}"'
