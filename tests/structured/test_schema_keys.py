r"""Keys of objects: no spelling of a key may get round what its schema says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.schema_keys import with_plain_keys
from tests.support.form_walker import FormWalker


def walker(schema: dict[str, Any]) -> FormWalker:
    return FormWalker(StructuredOutputsParams(json={"type": "object", **schema}))


A = {"properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize("others", [{}, {"additionalProperties": True}, {"additionalProperties": {}}])
def test_a_listed_key_cannot_come_under_another_spelling(others: dict[str, Any]) -> None:
    form = walker(A | others)
    assert form.accepts('{"a": 1, "b": "\\u0061", "é": {"\\u0061": 1}}')
    assert form.accepts('{"\\n": 1}') and form.accepts('{"ab": 1}') and form.accepts('{"": 1}')
    for refused in ('{"\\u0061": "x"}', '{"a": 1, "\\u0061": "x"}', '{"a": "x"}', '{"b": 1, "\\u0061": 1}'):
        assert not form.accepts(refused), refused


def test_a_listed_key_cannot_come_under_another_spelling_beside_a_schema_for_others() -> None:
    form = walker(
        {
            "properties": {"ab": {"type": "integer"}, "a": True, "ü": True},
            "additionalProperties": {"type": "string"},
        }
    )
    assert form.accepts('{"ab": 1, "a": [], "b": "s", "abc": "s", "": "s", "u": "s", "üü": "s"}')
    for refused in ('{"ab": "s"}', '{"\\u0061b": "s"}', '{"b": 1}', '{"\\u0061": "s"}', '{"\\u00fc": "s"}'):
        assert not form.accepts(refused), refused


def test_a_listed_key_with_a_control_character_cannot_come_under_another_spelling() -> None:
    form = walker({"properties": {"a\n": {"type": "integer"}, "\x1f": {"type": "integer"}}})
    assert form.accepts('{"a\\n": 1, "\\u001f": 2, "a": "s", "b\\n": "s"}')
    for refused in ('{"a\\u000a": "s"}', '{"a\\u000A": "s"}', '{"a\\n": "s"}', '{"\\u001F": "s"}'):
        assert not form.accepts(refused), refused


def test_a_key_that_a_pattern_speaks_about_cannot_come_under_another_spelling() -> None:
    form = walker(
        {
            "properties": {"y": {"type": "integer"}},
            "patternProperties": {"^x-": {"type": "integer"}, "^z$": {"type": "null"}},
            "additionalProperties": {"type": "string"},
        }
    )
    assert form.accepts('{"y": 1, "x-b": 1, "z": null, "zz": "s", "x": "s", "b": "s"}')
    for refused in (
        '{"\\u0078-b": "s"}',
        '{"x-b": "s"}',
        '{"z": "s"}',
        '{"\\u007a": "s"}',
        '{"\\u0079": "s"}',
    ):
        assert not form.accepts(refused), refused


def test_beside_patterns_that_are_more_than_a_beginning_nothing_else_comes() -> None:
    form = walker({"patternProperties": {"[0-9]$": {"type": "integer"}}})
    assert form.accepts('{"a1": 1}')
    assert not form.accepts('{"a\\u0031": "s"}') and not form.accepts('{"a": "s"}')


def test_parts_of_one_object_stay_parts_of_it() -> None:
    form = walker({"allOf": [A, {"properties": {"b": {"type": "null"}}, "required": ["b"]}]})
    assert form.accepts('{"a": 1, "b": null, "c": 2}')
    assert not form.accepts('{"\\u0061": "s", "b": null}') and not form.accepts('{"b": 1}')
    chosen = walker(A | {"anyOf": [{"required": ["a"]}, {"properties": {"b": True}, "required": ["b"]}]})
    assert chosen.accepts('{"a": 1}') and chosen.accepts('{"a": 1, "b": 2}') and not chosen.accepts("{}")
    with pytest.raises(StructuredOutputError, match="additionalProperties to false"):
        walker({"allOf": [A | {"additionalProperties": {"type": "integer"}}, {"properties": {"b": True}}]})


def test_required_names_that_are_not_listed_still_come() -> None:
    form = walker(A | {"required": ["x", "a"]})
    assert form.accepts('{"a": 1, "x": [], "b": 2}')
    assert not form.accepts('{"a": 1}')


names = st.text(st.sampled_from(["a", "b", "\n", "é", '"', "\x1f", "]", "\\", "^", "-"]), max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(names, min_size=1, max_size=5, unique=True), st.lists(names, min_size=1, max_size=5))
def test_further_names_are_all_but_the_listed_ones(listed: list[str], further: list[str]) -> None:
    schema = {
        "properties": {name: {"type": "null"} for name in listed},
        "additionalProperties": {"type": "boolean"},
    }
    form = walker(schema)
    has_further = not any(character in name for name in listed for character in '"\\')
    for name in further:
        is_free = name not in listed and has_further
        assert form.accepts(f"{{{json.dumps(name, ensure_ascii=False)}: true}}") == is_free, name


def test_a_schema_stays_as_it_is() -> None:
    schema: dict[str, Any] = {"properties": {"a": True}}
    with_plain_keys(schema)
    assert schema == {"properties": {"a": True}}
    assert with_plain_keys(True) is True


@pytest.mark.parametrize("names", [["x" * 20_000], [f"name_{i:05}" for i in range(5_000)]])
def test_names_that_are_too_long_to_exclude_leave_nothing_beside_them(names: list[str]) -> None:
    schema = {"properties": dict.fromkeys(names, True), "additionalProperties": {"type": "null"}}
    plain = with_plain_keys(schema)
    assert isinstance(plain, dict)
    assert plain == schema | {"additionalProperties": False}
