"""Random JSON schemas of what can be enforced, and random values that match them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

# DEL is written as an escape by the grammar library and raw by Python's encoder.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=12)
NAMES = st.text("abcXYZ_09 -", min_size=1, max_size=5)

_LEAVES: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "minLength": 1, "maxLength": 5},
    {"type": "string", "pattern": "^[a-c]+$"},
    {"type": "integer"},
    {"type": "integer", "minimum": -5, "maximum": 300},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["string", "null"]},
    {"type": ["integer", "string"], "title": "Either"},
    {"enum": ["a", "1", 1, None, True, "null"]},
    {"const": "constant"},
    {"type": "object"},
    {"type": "array"},
    {},
]


def schemas(*, is_object: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of a few levels; with `is_object`, of objects that list their properties."""
    inner = st.recursive(st.sampled_from(_LEAVES), _composed, max_leaves=6)
    return _objects(inner) if is_object else inner


def _composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner},
        optional={"minItems": st.integers(0, 2), "maxItems": st.integers(2, 4)},
    )
    unions = st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3))
    return arrays | unions | _objects(inner)


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    properties = draw(st.dictionaries(NAMES, inner, max_size=3))
    required = [name for name in properties if draw(st.booleans())]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.booleans() | inner)
    return schema


def closed(schema: Any) -> Any:
    """The same schema with objects that have only the properties that they list."""
    if isinstance(schema, list):
        return [closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return {**inner, "additionalProperties": False} if isinstance(inner.get("required"), list) else inner


def instances(schema: Any) -> st.SearchStrategy[Any]:
    """Values that match a schema made by `schemas`; properties come in the schema's order."""
    if schema is True or schema == {}:
        return st.recursive(
            st.none() | st.booleans() | st.integers(-(10**6), 10**6) | TEXTS,
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
            max_leaves=4,
        )
    if "anyOf" in schema:
        return st.one_of([instances(option) for option in schema["anyOf"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    return st.one_of([_of_type(kind, schema) for kind in kinds])


def _of_type(kind: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if kind == "string" and "pattern" in schema:
        return st.text("abc", min_size=1, max_size=6)
    if kind == "string":
        low, high = schema.get("minLength", 0), schema.get("maxLength", 12)
        return st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), min_size=low, max_size=high)
    if kind == "integer":
        return st.integers(schema.get("minimum", -(10**9)), schema.get("maximum", 10**9))
    if kind == "array":
        items = instances(schema.get("items", True))
        return st.lists(items, min_size=schema.get("minItems", 0), max_size=schema.get("maxItems", 3))
    if kind == "object":
        return _object_of(schema)
    floats = st.floats(allow_nan=False, allow_infinity=False, width=32)
    return {"number": floats, "boolean": st.booleans(), "null": st.none()}[kind]


@st.composite
def _object_of(draw: st.DrawFn, schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    value: dict[str, Any] = {}
    for name, inner in properties.items():
        if name in schema["required"] or draw(st.booleans()):
            value[name] = draw(instances(inner))
    others = schema.get("additionalProperties", True)
    if others is not False:
        extra = draw(st.dictionaries(TEXTS, instances(others), max_size=2))
        value |= {name: inner for name, inner in extra.items() if name not in properties}
    return value
