"""A JSON schema made ready for the grammar library: checked, cut down to what it enforces, references collected.

The library follows JSON Schema 2020-12 with these properties: an object's properties come in the order in which the
schema names them, further ones after them; an integer is written without a fraction. Formats that it does not know
are annotations, as JSON Schema says. Keywords that it cannot enforce are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from qanat.core.errors import StructuredOutputError
from qanat.structured.library import leave_out_unsupported, pattern_fault
from qanat.structured.parameters import known_types
from qanat.structured.schema_keys import with_plain_keys
from qanat.structured.schema_keywords import (
    COMBINATORS,
    UNSUPPORTED,
    cannot_matter,
    check_bounds,
    checked_value,
    closes_unevaluated,
)
from qanat.structured.schema_logic import Schema, has_instance, make_alternatives_plain
from qanat.structured.schema_paths import Path, find_reference, refuse, target_of

MAX_DEPTH = 100
"""Levels of nesting of a schema's JSON; the library's own reader ends at 128."""
MAX_NODES = 50_000
"""Schemas within a schema."""

WHITESPACE = r" |\n[ \t]{0,31}"
"""Between two parts of a JSON text: at most a space, or a line's end with so much indentation."""


def decoded_schema(schema: Any) -> Any:
    """A schema given as text, decoded; any other is returned as it is.

    Raises:
        StructuredOutputError: the text is no JSON.
    """
    if not isinstance(schema, str):
        return schema
    try:
        return msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError) as error:
        raise StructuredOutputError(f"The JSON schema is not JSON: {error}") from None


def schema_text(
    schema: Schema,
    *,
    whitespace_pattern: str | None = WHITESPACE,
    separators: tuple[str, str] | None = None,
) -> str:
    """A prepared schema with what the library is to allow beside it.

    Args:
        schema: as `SchemaDocument` prepares it.
        whitespace_pattern: regular expression of what may stand between two parts; None for nothing.
        separators: regular expressions of what stands between items, and between a key and its value.

    Raises:
        StructuredOutputError: a constant in it is no JSON value, or keys cannot be told apart.
    """
    options: dict[str, Any] = {"json_allow_general_unicode_escapes": True, "whitespace_flexible": False}
    if whitespace_pattern is not None:
        options["whitespace_pattern"] = whitespace_pattern
    if separators is not None:
        options["item_separator"], options["key_separator"] = separators
    plain = with_plain_keys(schema)
    body = {"anyOf": [plain]} if isinstance(plain, bool) else plain
    try:
        return json.dumps({**body, "x-guidance": options}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StructuredOutputError(f"The JSON schema holds what JSON cannot: {error}") from None


class SchemaDocument:
    """One JSON schema with everything that references in it lead to.

    Args:
        root: the whole schema.
        is_closed: objects whose schema lists properties have only those, unless it says otherwise.
        is_lenient: keywords that cannot be enforced are left out instead of refused, and types in Python's words read.

    Raises:
        StructuredOutputError: it is nested too deeply, or not made of JSON values.
    """

    def __init__(self, root: Any, *, is_closed: bool = False, is_lenient: bool = False) -> None:
        self.root = root
        self._is_closed = is_closed
        self._is_lenient = is_lenient
        self._num_nodes = 0
        self._names: dict[tuple[Path, bool], str] = {}
        self._waiting: list[tuple[str, Path, bool]] = []
        _check_depth(root)

    def prepared(self, *paths: Path, is_match_needed: bool = True) -> Schema:
        """A schema that stands alone and means the same as what stands at the path.

        Args:
            paths: of several, all hold for the same value; the root without any.
            is_match_needed: refuse a schema that nothing can match.

        Raises:
            StructuredOutputError: it is malformed, uses what is not supported, or nothing can match it.
        """
        self._names, self._waiting = {}, []
        parts = [self._schema(target_of(self.root, path), path, len(paths) > 1) for path in paths or ((),)]
        schema: Schema = {"allOf": parts} if len(parts) > 1 else parts[0]
        definitions: dict[str, Schema] = {}
        while self._waiting:
            name, target, is_composed = self._waiting.pop()
            definitions[name] = self._schema(target_of(self.root, target), target, is_composed)
        if definitions and isinstance(schema, dict):
            schema["$defs"] = definitions
        make_alternatives_plain(schema, is_lenient=self._is_lenient)
        if is_match_needed and not has_instance(schema):
            raise refuse(
                paths[0] if paths else (),
                "no JSON text can match it; it is false, or requires itself without an end",
            )
        return schema

    def _schema(self, node: Any, path: Path, is_composed: bool) -> Schema:
        """One schema without what is not enforced; with `is_composed`, others say more about the same value."""
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:
            raise refuse(path, f"it has more than {MAX_NODES} schemas in it")
        if isinstance(node, bool):
            return node
        if not isinstance(node, Mapping):
            raise refuse(path, "it is no schema; a schema is an object, true or false")
        schema: dict[str, Any] = {}
        for keyword, value in node.items():
            if keyword in UNSUPPORTED:
                self._leave_out(keyword, node, path)
            else:
                enforced = self._enforced(keyword, value, path, is_composed or _is_joined(keyword, node))
                if enforced is not None or (keyword == "const" and value is None):
                    schema[keyword] = enforced
        if self._is_lenient:
            leave_out_unsupported(schema)
        _order_items(schema)
        check_bounds(schema, path)
        for what in ("Properties", "Items"):
            closed = closes_unevaluated(node, what)
            if closed is not None:
                schema.setdefault(*closed)
        is_listed = not {"properties", "patternProperties"}.isdisjoint(schema)
        if self._is_closed and is_listed and not is_composed and schema.keys().isdisjoint(COMBINATORS):
            schema.setdefault("additionalProperties", False)
        return schema

    def _leave_out(self, keyword: str, node: Mapping[str, Any], path: Path) -> None:
        if not self._is_lenient and not cannot_matter(keyword, node):
            raise refuse(path, f"the keyword {keyword!r} cannot be enforced; leave it out")

    def _enforced(self, keyword: str, value: Any, path: Path, is_joined: bool) -> Any:
        """What stands for a keyword's value; None if it is nothing to enforce."""
        place = (*path, keyword)
        if keyword == "$ref":
            return self._reference(value, place, is_joined)
        if keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
            if not isinstance(value, list) or (not value and keyword != "prefixItems"):
                raise refuse(place, "it must be a list of schemas, with at least one")
            return self._each(value, place, is_joined and keyword != "prefixItems")
        if keyword in ("properties", "patternProperties"):
            if not isinstance(value, Mapping):
                raise refuse(place, "it must be an object of schemas")
            if keyword == "patternProperties":
                for pattern in value:
                    self._check_pattern(pattern, (*place, pattern))
            return {name: self._schema(node, (*place, name), False) for name, node in value.items()}
        if keyword == "items" and isinstance(value, list):
            return self._each(value, place, False)
        if keyword in ("additionalProperties", "items", "additionalItems"):
            return self._schema(value, place, False)
        if keyword == "type" and self._is_lenient:
            known = known_types(value)
            if not known:
                return None
            value = known[0] if len(known) == 1 else known
        checked = checked_value(keyword, value, path)
        if keyword == "pattern":
            self._check_pattern(checked, place)
        return checked

    def _check_pattern(self, pattern: str, place: Path) -> None:
        fault = "" if self._is_lenient else pattern_fault(pattern)
        if fault:
            raise refuse(place, fault)

    def _each(self, nodes: list[Any], place: Path, is_composed: bool) -> list[Schema]:
        return [self._schema(node, (*place, str(i)), is_composed) for i, node in enumerate(nodes)]

    def _reference(self, value: Any, place: Path, is_composed: bool) -> str:
        if not isinstance(value, str):
            raise refuse(place, "a reference is a text")
        key = (find_reference(self.root, value, place), is_composed)
        if key not in self._names:
            self._names[key] = f"d{len(self._names)}"
            self._waiting.append((self._names[key], *key))
        return f"#/$defs/{self._names[key]}"


def _is_joined(keyword: str, node: Mapping[str, Any]) -> bool:
    """Whether a schema under this keyword shares its value with others that may list properties."""
    others = {"properties", "patternProperties", "additionalProperties", *COMBINATORS} & node.keys() - {
        keyword
    }
    return keyword in COMBINATORS and (bool(others) or (keyword == "allOf" and len(node["allOf"]) > 1))


def _order_items(schema: dict[str, Any]) -> None:
    """Writes the older way to describe an array's first items as the newer one."""
    rest = schema.pop("additionalItems", None)
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        if rest is not None:
            schema["items"] = rest


def _check_depth(root: Any) -> None:
    """Walks the nested values level by level, as recursion could not bear what is to be refused."""
    level = [root]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for value in level
            if isinstance(value, Mapping | list)
            for inner in (value.values() if isinstance(value, Mapping) else value)
            if isinstance(inner, Mapping | list)
        ]
        if not level:
            return
    raise StructuredOutputError(f"The JSON schema is nested deeper than {MAX_DEPTH} levels.")
