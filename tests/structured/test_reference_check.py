"""References that lead nowhere are found wherever they can be met, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from qanat.core.errors import StructuredOutputError
from qanat.structured.reference_check import check_references
from tests.support.json_schemas import schemas

LOST = {"$ref": "#/$defs/nothing"}


@pytest.mark.parametrize(
    "schema",
    [
        LOST,
        {"$ref": "#/x"},
        {"$ref": "#anchor"},
        {"$ref": "other.json"},
        {"$ref": "https://example.com/schema.json#/a"},
        {"properties": {"a": {"items": LOST}}},
        {"properties": {"default": LOST}},
        {"properties": {"$defs": LOST}},
        {"anyOf": [{"type": "null"}, {"allOf": [LOST]}]},
        {"additionalProperties": LOST},
        {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": LOST}}}},
        {"$ref": "#b", "$defs": {"a": {"$anchor": "b", "items": LOST}}},
        {"$ref": "s#/properties/b", "$id": "s", "properties": {"a": {}}},
    ],
    ids=str,
)
def test_a_reference_to_nowhere_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(StructuredOutputError, match="leads nowhere|not in this schema"):
        check_references(schema)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        None,
        {"properties": "x"},
        {"$ref": 5},
        {"$ref": "#"},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"$ref": "#/$defs/c"}, "c": {"$ref": "#/$defs/a~1b"}}},
        {"$ref": "#b", "$defs": {"a": {"$anchor": "b"}}},
        {"$ref": "s", "$defs": {"a": {"$id": "s", "properties": {"next": {"$ref": "s"}}}}},
        {"enum": [LOST], "const": LOST, "default": LOST, "examples": [LOST]},
        {"$defs": {"unused": LOST}, "definitions": {"unused": LOST}},
    ],
    ids=str,
)
def test_what_has_none_passes(schema: Any) -> None:
    check_references(schema)


@given(schemas())
def test_schemas_that_can_be_followed_pass(schema: Any) -> None:
    check_references(schema)


class _Counted(dict[str, Any]):
    """An object whose entries are counted as they are looked at."""

    num_looks = 0

    def items(self) -> Any:
        _Counted.num_looks += len(self)
        return super().items()


@pytest.mark.parametrize("kind", ["pointers", "anchors"])
def test_many_references_cost_in_proportion(kind: str) -> None:
    num = 1000
    definitions = _Counted({f"d{i}": _Counted({"$anchor": f"a{i}", "type": "null"}) for i in range(num)})
    prefix = "#/$defs/d" if kind == "pointers" else "#a"
    schema = _Counted(
        {"anyOf": [_Counted({"$ref": f"{prefix}{i}"}) for i in range(num)], "$defs": definitions}
    )
    _Counted.num_looks = 0
    check_references(schema)
    assert _Counted.num_looks < 20 * num  # each with each would be a million
