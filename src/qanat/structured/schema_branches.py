"""The alternatives that a prepared JSON schema leaves for a value, each with all that is said about it at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from qanat.structured.schema_keywords import TYPES
from qanat.structured.schema_logic import Schema, is_same_value, type_of

MAX_BRANCHES = 64
"""Alternatives of one schema that are told apart."""

_NUMBER_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


@dataclass(frozen=True)
class Branch:
    """One alternative.

    Attributes:
        types: JSON types of its values; `number` stands for numbers with a fraction, whole ones are `integer` too.
        values: the only values there are; None if they are not listed.
        patterns: all of them are found in a text.
        min_length: of a text, in characters.
        max_length: None is no bound.
        is_number_bounded: a number must do more than be one.
    """

    types: frozenset[str]
    values: list[Any] | None
    patterns: list[str]
    min_length: int
    max_length: int | None
    is_number_bounded: bool


ANY_TEXT_BRANCH = Branch(frozenset({"string"}), None, [], 0, None, False)
"""Any text."""

_Parts = list[dict[str, Any]]


def branches_of(schema: Schema) -> list[Branch] | None:
    """The alternatives that allow any value; None if there are too many."""
    definitions = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    expanded = _expanded(schema, definitions, frozenset())
    if expanded is None:
        return None
    branches = [_joined(nodes) for nodes in expanded]
    return [branch for branch in branches if branch.types and branch.values != []]


def _expanded(
    node: Schema, definitions: Mapping[str, Schema], seen: frozenset[str]
) -> list[list[dict[str, Any]]] | None:
    """Lists of schemas without combinators; a value matches all of one of the lists."""
    if isinstance(node, bool):
        return [[]] if node else []
    factors: list[list[_Parts] | None] = [[[node]]]
    if "$ref" in node:
        name = node["$ref"].removeprefix("#/$defs/")
        # A schema that leads to itself says nothing new on the way.
        factors.append([] if name in seen else _expanded(definitions[name], definitions, seen | {name}))
    factors += [_expanded(part, definitions, seen) for part in node.get("allOf", [])]
    for keyword in ("anyOf", "oneOf"):
        if keyword in node:
            options = [_expanded(option, definitions, seen) for option in node[keyword]]
            factors.append(
                None if None in options else [nodes for option in options for nodes in option or ()]
            )
    if None in factors:
        return None
    num_branches = 1
    for factor in factors:
        num_branches *= len(factor or ())
        if num_branches > MAX_BRANCHES:
            return None
    return [
        [part for nodes in choice for part in nodes]
        for choice in product(*(factor or () for factor in factors))
    ]


def _joined(nodes: Sequence[Mapping[str, Any]]) -> Branch:
    types = set(TYPES)
    values: list[Any] | None = None
    for node in nodes:
        if "type" in node:
            declared = [node["type"]] if isinstance(node["type"], str) else node["type"]
            types &= {*declared, "integer"} if "number" in declared else set(declared)
        listed = [node["const"]] if "const" in node else node.get("enum")
        if listed is not None:
            values = [v for v in listed if values is None or any(is_same_value(v, other) for other in values)]
    if values is not None:
        values = [value for value in values if exact_type(value) in types]
        types &= {exact_type(value) for value in values}
    longest = [node["maxLength"] for node in nodes if "maxLength" in node]
    return Branch(
        types=frozenset(types),
        values=values,
        patterns=[node["pattern"] for node in nodes if "pattern" in node],
        min_length=max((node.get("minLength", 0) for node in nodes), default=0),
        max_length=min(longest, default=None),
        is_number_bounded=any(keyword in node for node in nodes for keyword in _NUMBER_KEYWORDS),
    )


def exact_type(value: Any) -> str:
    """The JSON type of a value; `integer` for a whole number without a fraction."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return "integer" if is_whole else type_of(value)


def searching(pattern: str) -> str:
    """A regular expression that matches a whole text in which the pattern is found."""
    parts = []
    for part in _top_level_parts(pattern):
        is_at_start = part.startswith("^")
        is_at_end = part.endswith("$") and (len(part) - len(part[:-1].rstrip("\\"))) % 2 == 1
        inner = part[is_at_start : len(part) - is_at_end]
        parts.append(f"{'' if is_at_start else '(?s:.*)'}(?:{inner}){'' if is_at_end else '(?s:.*)'}")
    return "|".join(parts)


def _top_level_parts(pattern: str) -> list[str]:
    """Cuts at each | that is outside of groups and sets."""
    parts, start, depth, is_in_set, i = [], 0, 0, False, 0
    while i < len(pattern):
        character = pattern[i]
        if character == "\\":
            i += 1
        elif is_in_set:
            is_in_set = character != "]"
        elif character == "[":
            is_in_set = True
        elif character == "|" and depth == 0:
            parts.append(pattern[start:i])
            start = i + 1
        else:
            depth += (character == "(") - (character == ")")
        i += 1
    return [*parts, pattern[start:]]
