"""JSON Schema's keywords: which are enforced, what their values must be, when others cannot matter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from qanat.structured.schema_paths import Path, refuse

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
"""What `type` may say."""

ENFORCED_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)
"""Values of `format` that the grammar library knows; others say nothing about the text."""

COMBINATORS = ("$ref", "allOf", "anyOf", "oneOf")
"""Keywords whose schemas apply to the same value."""

MAX_COUNT = 2**31 - 1
"""Largest length or number of items."""
MAX_NUMBER = 10**17
"""Largest bound of a number; the library has no ranges far beyond."""

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBER_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_ARRAY_KEYWORDS = {"uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems"}
_OBJECT_KEYWORDS = {
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
}
UNSUPPORTED = (
    frozenset({"not", "if", "then", "else", "$dynamicRef", "$recursiveRef"})
    | _ARRAY_KEYWORDS
    | _OBJECT_KEYWORDS
)
"""Keywords that say something about a value and cannot be enforced."""


def cannot_matter(keyword: str, node: Mapping[str, Any]) -> bool:
    """Whether an unsupported keyword allows everything that the rest of its schema allows."""
    value = node[keyword]
    types = node.get("type")
    declared = {types} if isinstance(types, str) else set(types) if isinstance(types, list) else set(TYPES)
    if keyword in _ARRAY_KEYWORDS and "array" not in declared:
        return True
    if keyword in _OBJECT_KEYWORDS and "object" not in declared:
        return True
    if keyword == "not":
        return value is False
    if keyword == "if":
        return not {"then", "else"} & node.keys()
    if keyword in ("then", "else"):
        return "if" not in node
    if keyword in ("minContains", "maxContains"):
        return "contains" not in node
    if keyword == "contains":
        return node.get("minContains") == 0 and "maxContains" not in node
    if keyword == "uniqueItems":
        return value is False or node.get("maxItems") in (0, 1)
    if keyword == "propertyNames":
        return value in (True, {}, {"type": "string"})
    if keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
        return bool(value == {})
    if keyword.startswith("unevaluated"):
        return (
            value in (True, {}) or closes_unevaluated(node, keyword.removeprefix("unevaluated")) is not None
        )
    return False


def closes_unevaluated(node: Mapping[str, Any], what: str) -> tuple[str, bool] | None:
    """What stands for `unevaluatedProperties` or `unevaluatedItems` where no other schema evaluates any.

    Args:
        node: the schema.
        what: `Properties` or `Items`.

    Returns:
        The keyword that says the same and its value; None if there is none.
    """
    keyword = "additionalProperties" if what == "Properties" else "items"
    if keyword in node:
        return keyword, True  # nothing is left unevaluated
    if node.get(f"unevaluated{what}") is False and not {*COMBINATORS, "if"} & node.keys():
        return keyword, False
    return None


def checked_value(keyword: str, value: Any, path: Path) -> Any:
    """The value of a keyword that holds no schema; None if it is nothing to enforce.

    Raises:
        StructuredOutputError: it is not of the keyword's type.
    """
    place = (*path, keyword)
    if keyword == "type":
        return _checked_type(value, place)
    if keyword == "const":
        return value
    if keyword == "enum":
        if not isinstance(value, list) or not value:
            raise refuse(place, "it must be a list with at least one value")
        return value
    if keyword == "required":
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise refuse(place, "it must be a list of property names")
        return list(dict.fromkeys(value))
    if keyword in _COUNTS:
        return _checked_count(value, place)
    if keyword in _NUMBER_BOUNDS or keyword == "multipleOf":
        return _checked_number(keyword, value, place)
    if keyword in ("pattern", "format"):
        if not isinstance(value, str):
            raise refuse(place, "it must be a text")
        return value if keyword == "pattern" or value in ENFORCED_FORMATS else None
    return None


def check_bounds(schema: Mapping[str, Any], path: Path) -> None:
    """Checks that no lower bound is above its upper one.

    Raises:
        StructuredOutputError: one is.
    """
    pairs = [(f"min{what}", f"max{what}") for what in ("Length", "Items", "Properties")] + [
        ("minimum", "maximum")
    ]
    for low, high in pairs:
        if low in schema and high in schema and schema[low] > schema[high]:
            raise refuse(path, f"{low} ({schema[low]}) is greater than {high} ({schema[high]})")


def _checked_type(value: Any, place: Path) -> str | list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise refuse(place, f"it must be one of {', '.join(TYPES)}, or a list of these")
    for name in names:
        if name not in TYPES:
            raise refuse(place, f"{name!r} is no type; types are {', '.join(TYPES)}")
    unique: list[str] = list(dict.fromkeys(names))
    return unique if isinstance(value, list) else unique[0]


def _checked_count(value: Any, place: Path) -> int:
    is_whole = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value == int(value)
    )
    if not is_whole or not 0 <= value <= MAX_COUNT:
        raise refuse(place, f"it must be a whole number from 0 to {MAX_COUNT}")
    return int(value)


def _checked_number(keyword: str, value: Any, place: Path) -> Any:
    if keyword.startswith("exclusive") and isinstance(value, bool):
        return value  # draft 4: the bound beside it is exclusive
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(place, "it must be a number")
    if keyword == "multipleOf" and value <= 0:
        raise refuse(place, "it must be greater than 0")
    if not abs(value) <= MAX_NUMBER:
        raise refuse(place, f"it must be between -{MAX_NUMBER} and {MAX_NUMBER}; leave it out")
    return value
