"""Forms in the words of the xgrammar library, as far as it keeps them to the letter."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from qanat.core.errors import StructuredOutputError
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.grammars import GBNF_RULE
from qanat.structured.json_schema import SchemaDocument, decoded_schema, schema_text
from qanat.structured.lark import TokenId, pieces_of
from qanat.structured.schema_keywords import COMBINATORS
from qanat.structured.schema_logic import Schema, nodes_of
from qanat.structured.tag_fields import Format, list_of, text_of
from qanat.structured.tags import decoded_tag, naming_function

MAX_WHITESPACE = 32
"""Characters of whitespace between two parts of a JSON text."""

# Bounds of a text's length let raw line ends into it; the others are overlooked, by themselves or beside others.
_REFUSED_KEYWORDS = (
    "minLength",
    "maxLength",
    "multipleOf",
    "patternProperties",
    "minProperties",
    "maxProperties",
    "allOf",
)
_ANCHOR_INSIDE = re.compile(r"\(\?[=!<]|[^\[\\|]\^|(?<!\\)\$[^|]")
# The library matches a pattern with the whole text, wherever JSON Schema would search for it.
_WHOLE = re.compile(r"\^(?!.*(?:\(\?[=!<]|[^\[\\]\^))(?:[^\\$|()]|\\.|\((?:[^\\$()]|\\.)*\))*\$", re.DOTALL)


class XgrammarForms:
    """Translates forms; see `qanat.structured.tags` for what the types of formats mean.

    Free text is not offered: the library would let tokens into it that are no text.

    Args:
        params: the form.
        token_id: finds tokens that are written as themselves and never as text.
    """

    def __init__(self, params: StructuredOutputsParams, token_id: TokenId) -> None:
        if params.whitespace_pattern is not None:
            raise _unsupported("whitespace_pattern")
        if params.disable_any_whitespace:
            raise _unsupported("disable_any_whitespace")
        self._is_closed = params.disable_additional_properties
        self._params = params
        self._token_id = token_id

    def format(self) -> Format:
        """The whole form as one format of the library's structural tags.

        Raises:
            StructuredOutputError: it is malformed, or the library does not offer it.
        """
        params = self._params
        if params.structural_tag is not None:
            return self._translated(decoded_tag(params.structural_tag))
        if params.regex is not None:
            return _regex({"pattern": params.regex})
        if params.choice is not None:
            if not params.choice:
                raise StructuredOutputError("choice needs at least one text.", param="choice")
            return _either([{"type": "const_string", "value": text} for text in params.choice])
        if params.grammar is not None:
            return _grammar({"grammar": params.grammar})
        return self._json({"json_schema": {"type": "object"} if params.json is None else params.json})

    def _translated(self, node: Any) -> Format:
        if not isinstance(node, Mapping):
            raise StructuredOutputError("The structural tag's formats must be objects.")
        kind = node.get("type")
        if kind == "const_string":
            return _sequence(self._literal(text_of(node, "value")))
        if kind == "json_schema":
            with naming_function(node):
                return self._json(node)
        if kind == "regex":
            return _regex(node)
        if kind == "grammar":
            return _grammar(node)
        if kind == "tag":
            return self._tag(node)
        if kind == "tags_with_separator":
            return self._tags_with_separator(node)
        if kind == "structural_tag":
            return self._translated(decoded_tag(node.get("structural_tag", node)))
        if kind in ("sequence", "or"):
            elements = [self._translated(element) for element in _filled_list(node, "elements")]
            return {"type": kind, "elements": elements}
        if kind in ("optional", "star", "plus"):
            return {"type": kind, "content": self._translated(node.get("content"))}
        raise _unsupported(f"formats of type {kind!r}")

    def _literal(self, text: str) -> list[Format]:
        """A text in pieces: plain ones and tokens."""
        pieces = pieces_of(text, self._token_id)
        return [
            {"type": "const_string", "value": piece}
            if isinstance(piece, str)
            else {"type": "token", "token": piece}
            for piece in pieces
        ]

    def _json(self, node: Format) -> Format:
        if node.get("style", "json") != "json" or node.get("any_order"):
            raise _unsupported("json_schema with a style or in any order")
        is_lenient = node.get("strict") is False
        try:
            schema = self._schema(node, is_lenient=is_lenient)
        except StructuredOutputError:
            if not is_lenient:
                raise
            schema = self._schema({"json_schema": {"type": "object"}}, is_lenient=True)
        return {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": MAX_WHITESPACE}

    def _schema(self, node: Format, *, is_lenient: bool) -> Schema:
        source = decoded_schema(node.get("json_schema"))
        schema = SchemaDocument(source, is_closed=self._is_closed, is_lenient=is_lenient).prepared()
        schema_text(schema)  # refuses what is no JSON
        opened = copy.deepcopy(schema)
        for part in nodes_of(opened):
            _check_keywords(part)
            _spell_out(part)
        return opened

    def _tag(self, node: Format) -> Format:
        end = node.get("end", "")
        ends = [end] if isinstance(end, str) else _filled_list(node, "end")
        closing = _either([_sequence(self._literal(str(text))) for text in ends])
        return _sequence(
            [*self._literal(text_of(node, "begin")), self._translated(node.get("content")), closing]
        )

    def _tags_with_separator(self, node: Format) -> Format:
        tag = _either([self._tag(tag) for tag in _filled_list(node, "tags") if isinstance(tag, Mapping)])
        separator = self._literal(text_of(node, "separator"))
        further: Format = {"type": "star", "content": _sequence([*separator, tag])}
        several = tag if node.get("stop_after_first") else _sequence([tag, further])
        return several if node.get("at_least_one") else {"type": "optional", "content": several}


def _check_keywords(node: Mapping[str, Any]) -> None:
    """Refuses what the library would overlook."""
    refused = [keyword for keyword in _REFUSED_KEYWORDS if keyword in node]
    if refused:
        raise _unsupported(f"the keyword {refused[0]!r}")
    combined = [keyword for keyword in COMBINATORS if keyword in node]
    others = node.keys() - {"$defs", *combined}
    if len(combined) > 1 or (combined and others):
        raise _unsupported(f"{combined[0]!r} beside other keywords")
    if ("const" in node or "enum" in node) and node.keys() - {"const", "enum", "type", "$defs"}:
        raise _unsupported("constants beside other keywords")
    if "pattern" in node and "format" in node:
        raise _unsupported("a pattern beside a format")
    if "pattern" in node and _WHOLE.fullmatch(node["pattern"]) is None:
        raise _unsupported("patterns other than ^...$ without anchors, look-around or alternatives inside")


def _spell_out(node: dict[str, Any]) -> None:
    """Says that there may be more properties and items where the schema is silent; silence is a no to the library."""
    if not node.keys().isdisjoint(("type", "properties", "required")):
        node.setdefault("additionalProperties", True)
    if not node.keys().isdisjoint(("type", "prefixItems", "minItems", "maxItems")):
        node.setdefault("items", True)


def _regex(node: Format) -> Format:
    pattern = text_of(node, "pattern")
    if _ANCHOR_INSIDE.search(pattern):
        raise _unsupported("look-around, or anchors inside an expression")
    return {"type": "regex", "pattern": pattern}


def _grammar(node: Format) -> Format:
    source = text_of(node, "grammar")
    if GBNF_RULE.search(source) is None:
        raise _unsupported("grammars in Lark, but in GBNF")
    return {"type": "grammar", "grammar": source}


def _sequence(elements: Sequence[Format]) -> Format:
    return elements[0] if len(elements) == 1 else {"type": "sequence", "elements": list(elements)}


def _either(elements: Sequence[Format]) -> Format:
    if not elements:
        raise StructuredOutputError("The structural tag needs at least one alternative.")
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": list(elements)}


def _filled_list(node: Format, name: str) -> list[Any]:
    value = list_of(node, name)
    if not value:
        raise StructuredOutputError(f"The structural tag's {name} must be a list.")
    return value


def _unsupported(what: str) -> StructuredOutputError:
    return StructuredOutputError(f"The backend xgrammar does not offer {what}; the backend guidance may.")
