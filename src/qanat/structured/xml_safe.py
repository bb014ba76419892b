"""JSON between XML tags: no text in it, and no key, may hold the tag that closes it."""

from __future__ import annotations

import copy
import json
from typing import Any

from qanat.structured.schema_keywords import COMBINATORS, TYPES
from qanat.structured.schema_logic import Schema, nodes_of

_ANY_NAME = "any_value"
_ANY = {"$ref": f"#/$defs/{_ANY_NAME}"}
_NUMBERS = {"integer", "number"}
_PLAIN_KEY = "^[^<]*$"


def without_closing_tag(schema: Schema, tag: str) -> Schema:
    """A prepared schema narrowed to values whose JSON does not hold the tag; what was free becomes spelled out.

    An object that lists properties has only those, and keys of others hold no `<` at all. Schemas that share a value
    with others stay open, as each of them is a part of what is said about it.

    Args:
        schema: stays as it is.
        tag: begins with `<` and has no other.
    """
    narrowed: dict[str, Any] = {"allOf": [schema]} if isinstance(schema, bool) else copy.deepcopy(schema)
    pattern = _avoiding(tag)
    shared = shared_nodes(narrowed)
    for node in list(nodes_of(narrowed)):
        _narrow(node, pattern, tag, is_shared=id(node) in shared)
    any_value = {
        "anyOf": [
            {"type": ["null", "boolean", "number"]},
            {"type": "string", "pattern": pattern},
            {"type": "array", "items": _ANY},
            {"type": "object", "patternProperties": {_PLAIN_KEY: _ANY}, "additionalProperties": False},
        ]
    }
    definitions = {**narrowed.get("$defs", {}), _ANY_NAME: any_value}
    return {**narrowed, "$defs": definitions}


def restricted(schema: Schema, types: frozenset[str]) -> Schema:
    """A prepared schema narrowed to values of these JSON types."""
    definitions: dict[str, Schema] = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    narrowed = _restricted(schema, types, definitions, frozenset())
    return {**narrowed, "$defs": definitions} if isinstance(narrowed, dict) and definitions else narrowed


def _restricted(
    node: Schema, types: frozenset[str], definitions: dict[str, Schema], seen: frozenset[str]
) -> Schema:
    if isinstance(node, bool):
        return {"type": sorted(types)} if node else False
    own = {keyword: value for keyword, value in node.items() if keyword != "$defs"}
    if own.keys() == {"$ref"} and own["$ref"] not in seen:
        target = definitions[own["$ref"].removeprefix("#/$defs/")]
        return _restricted(target, types, definitions, seen | {own["$ref"]})
    if "anyOf" in own:
        options = [_restricted(option, types, definitions, seen) for option in own["anyOf"]]
        own["anyOf"] = [option for option in options if option is not False]
        return own if own["anyOf"] else False
    declared = own.get("type", TYPES)
    kept = [name for name in ([declared] if isinstance(declared, str) else declared) if name in types]
    if "number" in types and "integer" in declared and "integer" not in kept:
        kept.append("integer")
    if "integer" in types and "number" in declared and not _NUMBERS & set(kept):
        kept.append("integer")
    return {**own, "type": kept} if kept else False


def shared_nodes(schema: dict[str, Any]) -> set[int]:
    """Identities of schemas that hold for a value together with another one."""
    shared: set[int] = set()
    definitions = schema.get("$defs", {})
    for node in nodes_of(schema):
        parts = [*node.get("allOf", []), *node.get("anyOf", []), *node.get("oneOf", [])]
        if "$ref" in node:
            parts.append(definitions[node["$ref"].removeprefix("#/$defs/")])
        is_several = len(node.get("allOf", [])) > 1 or len(node.keys() - {"$defs"}) > 1
        if parts and (is_several or id(node) in shared):
            shared |= {id(node), *map(id, parts)}
    return shared


def _narrow(node: dict[str, Any], pattern: str, tag: str, *, is_shared: bool) -> None:
    for keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
        if keyword in node:
            node[keyword] = [_spelled_out(inner) for inner in node[keyword]]
    for keyword in ("properties", "patternProperties", "$defs"):
        if keyword in node:
            node[keyword] = {name: _spelled_out(inner) for name, inner in node[keyword].items()}
    for keyword in ("const", "enum"):
        if keyword in node:
            listed = [node.pop(keyword)] if keyword == "const" else node.pop(keyword)
            kept = [value for value in listed if tag not in json.dumps(value, ensure_ascii=False)]
            narrowed: dict[str, Any] = {"enum": kept} if kept else {"allOf": [False]}
            node.update(narrowed)
            return
    own = node.keys() - {*COMBINATORS, "$defs"}
    if not own:
        return
    types = node.get("type", ("string", "array", "object"))
    if "string" in types and "format" not in node:
        if "pattern" in node:
            node.setdefault("allOf", []).append({"pattern": pattern})
        else:
            node["pattern"] = pattern
    if is_shared:
        return
    if "array" in types:
        node["items"] = _spelled_out(node.get("items", True))
    if "object" in types:
        _narrow_keys(node, tag)


def _narrow_keys(node: dict[str, Any], tag: str) -> None:
    others = _spelled_out(node.get("additionalProperties", True))
    node["additionalProperties"] = False
    if node.get("properties"):
        node["properties"] = {name: tag not in name and inner for name, inner in node["properties"].items()}
    elif others is not False:
        node.setdefault("patternProperties", {_PLAIN_KEY: others})


def _spelled_out(schema: Schema) -> Schema:
    return dict(_ANY) if schema is True or schema == {} else schema


def _avoiding(tag: str) -> str:
    """A regular expression of texts without the tag: what follows each `<` differs from the tag somewhere."""
    rest = ""
    for character in reversed(tag[1:]):
        go_on = f"|{_escaped(character)}{rest}" if rest else ""
        rest = f"(?:[^<{_escaped(character)}][^<]*{go_on})?"
    return f"^[^<]*(?:<{rest})*$"


def _escaped(character: str) -> str:
    return character if character.isalnum() else f"\\x{ord(character):02X}"
