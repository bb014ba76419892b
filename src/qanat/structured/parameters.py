"""Types that a JSON schema gives a parameter, and text made into a JSON value of one of them."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from qanat.structured.mending import mended
from qanat.structured.schema_keywords import TYPES

STRING: frozenset[str] = frozenset({"string"})
MAX_SCHEMAS = 1000
"""Parts of one schema that are looked at; what lies beyond is not."""

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": "true", "false": "false"}
_NULLS = {"null": "null", "none": "null"}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


# Numbers may be larger than Python's own.
_SHAPE = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=_refuse)
_UNIONS = ("anyOf", "oneOf", "allOf")
_OTHER_NAMES = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "tuple": "array",
    "none": "null",
    "nonetype": "null",
}
"""What tools call types that are made from Python's, in place of JSON Schema's words."""


def parameter_types(schema: Mapping[str, Any] | None, name: str) -> frozenset[str]:
    """Names of the JSON types that a parameter may have; string alone if the schema does not say.

    Args:
        schema: of all parameters of the tool; references lead into it.
        name: the parameter.
    """
    if not isinstance(schema, Mapping):
        return STRING
    found: list[Any] = []
    for part in _parts([schema], schema):
        properties = part.get("properties")
        own = properties.get(name) if isinstance(properties, Mapping) else None
        found.append(own if isinstance(own, Mapping) else part.get("additionalProperties"))
    types = {name for alternative in _parts(found, schema) for name in _named_types(alternative)}
    return frozenset(types) or STRING


def _parts(schemas: list[Any], root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schemas and all that they are composed of, each once, nearer parts first, references followed."""
    waiting = deque(schemas)
    seen: set[int] = set()
    while waiting and len(seen) < MAX_SCHEMAS:
        part = waiting.popleft()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        for key in _UNIONS:
            if isinstance(part.get(key), list):
                waiting += part[key]
        if isinstance(part.get("$ref"), str):
            waiting.append(_resolved(part["$ref"], root))


def _resolved(reference: str, root: Any) -> Any:
    """The part of the schema that a reference such as "#/$defs/Name" points to; None if there is none."""
    if not reference.startswith("#"):
        return None
    found = root
    for step in reference.removeprefix("#").split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found


def _named_types(schema: Mapping[str, Any]) -> set[str]:
    """Types that this part itself names, or lets one know by its keywords."""
    declared = schema.get("type")
    types = set(known_types(declared))
    if schema.get("nullable") is True:
        types.add("null")
    if declared is None:
        values = list(schema["enum"]) if isinstance(schema.get("enum"), list) else []
        values += [schema["const"]] if "const" in schema else []
        types |= {_type_of(value) for value in values}
        types |= {"object"} if "properties" in schema else set()
        types |= {"array"} if "items" in schema else set()
    return types


def known_types(declared: object) -> list[str]:
    """JSON Schema's words for the types that a schema names, however its author spells them; others are left out."""
    names = declared if isinstance(declared, list) else [declared]
    words = [name.lower() for name in names if isinstance(name, str)]
    found = [_OTHER_NAMES.get(word, word) for word in words]
    return [name for name in dict.fromkeys(found) if name in TYPES]


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def json_of(text: str, types: frozenset[str]) -> str:
    """JSON for a value that a model wrote as bare text.

    Of several types the narrower one goes first and string last, so null is not a text where it may be null. What
    fits none of them is a string. Numbers, objects and lists keep the model's spelling where that is JSON; Python's
    spellings are understood, as templates show them to models, and so are texts with raw line ends.

    Args:
        text: the value without the newlines around it.
        types: of the schema.
    """
    bare = text.strip()
    if "null" in types and bare.lower() in _NULLS:
        return _NULLS[bare.lower()]
    if "boolean" in types and bare.lower() in _BOOLEANS:
        return _BOOLEANS[bare.lower()]
    is_integer = "integer" in types and _INTEGER.fullmatch(bare)
    is_number = "number" in types and _NUMBER.fullmatch(bare)
    if is_integer or is_number:
        return bare
    kinds = {"object": dict, "array": list}
    wanted = tuple(kinds[name] for name in kinds if name in types)
    if wanted and bare[:1] in ("{", "["):
        if isinstance(_decoded(bare), wanted):
            return bare
        candidate = mended(bare)
        if isinstance(_decoded(candidate), wanted):
            return candidate
    return msgspec.json.encode(text).decode()


def _decoded(text: str) -> object:
    """The JSON value, in shape; None for text that is not JSON."""
    try:
        return _SHAPE.decode(text)
    except (RecursionError, ValueError):
        return None
