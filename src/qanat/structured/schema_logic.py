"""What can be said about a prepared JSON schema without a value: whether one can match it, or two schemas at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qanat.core.errors import StructuredOutputError
from qanat.structured.schema_keywords import COMBINATORS, TYPES
from qanat.structured.schema_paths import refuse

MAX_COMPARISONS = 20_000
"""Pairs of schemas that are compared for one document; beyond, alternatives count as overlapping."""

Schema = dict[str, Any] | bool

_ALL_TYPES = frozenset(TYPES) - {"integer"}
_PREFIX = "#/$defs/"


def nodes_of(schema: Schema) -> Iterator[dict[str, Any]]:
    """Every schema object within a prepared schema, outer ones first, its definitions too."""
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            continue
        yield node
        for keyword, value in node.items():
            if keyword in ("properties", "patternProperties", "$defs"):
                waiting += value.values()
            elif keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
                waiting += value
            elif keyword in ("additionalProperties", "items"):
                waiting.append(value)


def make_alternatives_plain(schema: Schema, *, is_lenient: bool) -> None:
    """Turns each `oneOf` into an `anyOf`, in place, as no value can match two of its schemas.

    Args:
        schema: prepared.
        is_lenient: do so even where it cannot be shown.

    Raises:
        StructuredOutputError: it cannot be shown.
    """
    if not isinstance(schema, dict):
        return
    overlap = _Overlap(schema.get("$defs", {}))
    for node in list(nodes_of(schema)):
        options = node.get("oneOf")
        if options is None:
            continue
        for i, first in enumerate(options):
            for j in range(i):
                if not is_lenient and not overlap.is_excluded(first, options[j]):
                    raise _overlapping(j, i)
        if "anyOf" in node:
            node.setdefault("allOf", []).append({"anyOf": node.pop("oneOf")})
        else:
            renamed = {("anyOf" if keyword == "oneOf" else keyword): value for keyword, value in node.items()}
            node.clear()
            node.update(renamed)


def _overlapping(first: int, second: int) -> StructuredOutputError:
    return refuse(
        ("...", "oneOf"),
        f"a value may match both schema {first} and schema {second}, and that cannot be excluded while "
        "generating; write anyOf, or give them different types or a property with different constants",
    )


class _Overlap:
    """Shows of two schemas that no value matches both; counts its work."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions
        self._num_left = MAX_COMPARISONS

    def is_excluded(self, first: Schema, second: Schema, depth: int = 0) -> bool:
        """True if no value matches both; False if that is not plain."""
        self._num_left -= 1
        if first is False or second is False:
            return True
        if self._num_left < 0 or depth > 8:
            return False
        ours, theirs = self._conditions(first), self._conditions(second)
        return any(self._is_pair_excluded(one, other, depth) for one in ours for other in theirs)

    def _conditions(self, schema: Schema) -> list[dict[str, Any]]:
        """Schemas all of which hold for a value that matches this one."""
        found: list[dict[str, Any]] = []
        waiting: list[Schema] = [schema]
        while waiting and len(found) < 32:
            node = waiting.pop()
            if isinstance(node, dict):
                found.append(node)
                waiting += node.get("allOf", [])
                if "$ref" in node:
                    waiting.append(self._definitions.get(node["$ref"].removeprefix(_PREFIX), True))
        return found

    def _is_pair_excluded(self, one: dict[str, Any], other: dict[str, Any], depth: int) -> bool:
        for node, against in ((one, other), (other, one)):
            for keyword in ("anyOf", "oneOf"):
                if keyword in node and all(self.is_excluded(o, against, depth + 1) for o in node[keyword]):
                    return True
        ours, theirs = _values(one), _values(other)
        if ours is not None and theirs is not None:
            return not any(is_same_value(mine, yours) for mine in ours for yours in theirs)
        common = _types(one) & _types(other)
        if not common:
            return True
        if common == {"number"}:
            return _is_below(one, other) or _is_below(other, one)
        return common == {"object"} and self._is_property_excluded(one, other, depth)

    def _is_property_excluded(self, one: dict[str, Any], other: dict[str, Any], depth: int) -> bool:
        names = dict.fromkeys([*one.get("required", []), *other.get("required", [])])
        return any(
            self.is_excluded(_property(one, name), _property(other, name), depth + 1) for name in names
        )


def has_instance(schema: Schema) -> bool:
    """Whether some finite value may match; False only where it is plain that none can.

    Computed as the least fixed point over the definitions: one is possible once what it needs is.
    """
    if isinstance(schema, bool):
        return schema
    definitions: dict[str, Schema] = schema.get("$defs", {})
    possible: set[str] = set()
    is_changed = True
    while is_changed:
        is_changed = False
        for name in reversed(list(definitions)):
            if name not in possible and _is_possible(definitions[name], possible):
                possible.add(name)
                is_changed = True
    return _is_possible(schema, possible)


def _is_possible(node: Schema, possible: set[str]) -> bool:
    if isinstance(node, bool):
        return node
    if "$ref" in node and node["$ref"].removeprefix(_PREFIX) not in possible:
        return False
    if not all(_is_possible(part, possible) for part in node.get("allOf", [])):
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in node and not any(_is_possible(option, possible) for option in node[keyword]):
            return False
    types = _types(node)
    if types - {"object", "array"} or any(keyword in node for keyword in COMBINATORS):
        return True
    is_object = "object" in types and all(
        _is_possible(_property(node, name), possible) for name in node.get("required", [])
    )
    return is_object or ("array" in types and _is_array_possible(node, possible))


def _is_array_possible(node: dict[str, Any], possible: set[str]) -> bool:
    num_items = node.get("minItems", 0)
    first = node.get("prefixItems", [])[:num_items]
    is_tail_needed = num_items > len(first)
    return all(_is_possible(item, possible) for item in first) and (
        not is_tail_needed or _is_possible(node.get("items", True), possible)
    )


def _property(node: Mapping[str, Any], name: str) -> Schema:
    found: Schema = node.get("properties", {}).get(name, True)
    if name in node.get("properties", {}) or node.get("patternProperties"):
        return found
    return node.get("additionalProperties", True)  # type: ignore[no-any-return]


def _types(node: Mapping[str, Any]) -> frozenset[str]:
    declared = node.get("type")
    names = {declared} if isinstance(declared, str) else set(declared) if declared else set(_ALL_TYPES)
    values = _values(node)
    if values is not None:
        names &= {type_of(value) for value in values} | ({"integer"} if "integer" in names else set())
    return frozenset("number" if name == "integer" else name for name in names)


def _values(node: Mapping[str, Any]) -> list[Any] | None:
    if "const" in node:
        return [node["const"]]
    return node.get("enum")


def type_of(value: Any) -> str:
    """The JSON type of a value; whole numbers are numbers."""
    if value is None:
        return "null"
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def is_same_value(one: Any, other: Any) -> bool:
    """Equality of JSON values: true is not 1."""
    return type_of(one) == type_of(other) and bool(one == other)


def _is_below(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether all numbers of one are less than all of the other."""
    highs = [one[key] for key in ("maximum", "exclusiveMaximum") if _is_number(one.get(key))]
    lows = [other[key] for key in ("minimum", "exclusiveMinimum") if _is_number(other.get(key))]
    return bool(highs and lows) and min(highs) < max(lows)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
