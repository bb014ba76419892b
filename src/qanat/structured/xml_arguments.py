"""Arguments of a call between parameter tags: what the reader of such calls reads back with the schema's types.

A value stands between two lines' ends. Text stands as it is up to the closing tag, so it cannot contain that tag;
everything else is JSON. Of a parameter that may be text or something else, the reader takes for text only what reads as
nothing else, and so the grammar writes no text that reads as another of the parameter's types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from llguidance import regex_to_lark

from qanat.core.errors import StructuredOutputError
from qanat.structured.json_schema import SchemaDocument, schema_text
from qanat.structured.lark import ANY_TEXT, Grammar, escaped
from qanat.structured.library import check_schema_source
from qanat.structured.parameters import json_of, parameter_types
from qanat.structured.schema_branches import ANY_TEXT_BRANCH, Branch, branches_of, exact_type, searching
from qanat.structured.schema_keywords import COMBINATORS
from qanat.structured.schema_logic import Schema, has_instance
from qanat.structured.schema_paths import find_reference, refuse, target_of
from qanat.structured.xml_safe import restricted, without_closing_tag

VALUE_END = "</parameter>"
_LINE_END = f"\n{VALUE_END}\n"

_SPACE = r"[\s\x1c-\x1f]*"  # what Python's strip() takes away
_NUMBER_START = f"/{_SPACE}-?[0-9]{ANY_TEXT}/"
_SPELLINGS = {
    "null": r"([nN][uU][lL][lL]|[nN][oO][nN][eE])",
    "boolean": r"([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])",
    "integer": r"-?(0|[1-9][0-9]*)",
    "number": r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?",
}
_SEPARATORS, _COMPACT_SEPARATORS = (", ?", ": ?"), (",", ":")
_BRACKETS = {"object": r"\{", "array": r"\["}
_NESTED = frozenset(_BRACKETS)
_NUMBERS = frozenset({"integer", "number"})
_NAME = re.compile(r"[^<>\n]+")


class XmlArguments:
    """Writes the parameters of one function into a grammar.

    Args:
        grammar: takes the rules.
        schema: of all parameters.
        is_lenient: what cannot be enforced is left out instead of refused.
        is_closed: there are only the listed parameters, unless the schema says otherwise; so it is with objects.
        is_compact: no whitespace between the parts of a JSON text.
    """

    def __init__(
        self,
        grammar: Grammar,
        schema: Any,
        *,
        is_lenient: bool,
        is_closed: bool = False,
        is_compact: bool = False,
    ) -> None:
        self._grammar = grammar
        self._root = schema
        self._is_lenient = is_lenient
        self._is_closed_if_listed = is_closed
        self._separators = _COMPACT_SEPARATORS if is_compact else _SEPARATORS
        self._document = SchemaDocument(schema, is_closed=is_closed, is_lenient=is_lenient)
        self._properties: dict[str, list[tuple[str, ...]]] = {}
        self._required: dict[str, None] = {}
        self._others: list[tuple[str, ...]] = []
        self._is_closed = False
        self._collect((), set(), is_composed=False)

    def expression(self) -> str:
        """All parameters in the schema's order, optional ones perhaps, further ones after them where they may be.

        Raises:
            StructuredOutputError: the schema is malformed, or uses what cannot be enforced or written.
        """
        names = list(dict.fromkeys([*self._properties, *self._required]))
        parts = [self._parameter(name) for name in names]
        if not self._is_closed:
            parts.append(self._further(names))
        return self._grammar.rule(" ".join(part for part in parts if part) or '""')

    def _collect(self, path: tuple[str, ...], seen: set[tuple[str, ...]], *, is_composed: bool) -> None:
        """Gathers what the schemas say that all hold for the arguments; with `is_composed` there are several."""
        node = target_of(self._root, path)
        if path in seen or node is True:
            return
        seen.add(path)
        if not isinstance(node, Mapping):
            raise refuse(path, "it is no schema of an object")
        refused = [word for word in ("anyOf", "oneOf", "patternProperties") if node.get(word)]
        refused += [word for word in ("minProperties", "maxProperties") if word in node]
        if refused and not self._is_lenient:
            raise refuse(path, f"the keyword {refused[0]!r} cannot be enforced for a function's parameters")
        for keyword, kind in (("properties", Mapping), ("required", list), ("allOf", list)):
            if keyword in node and not isinstance(node[keyword], kind):
                raise refuse((*path, keyword), "it has the wrong type")
        for name in node.get("properties", {}):
            self._properties.setdefault(name, []).append((*path, "properties", name))
        self._required |= dict.fromkeys(node.get("required", []))
        if node.get("additionalProperties") is False:
            self._is_closed = True
        elif "additionalProperties" in node:
            self._others.append((*path, "additionalProperties"))
        elif self._is_closed_if_listed and node.get("properties") is not None:
            self._is_closed |= not is_composed and node.keys().isdisjoint(COMBINATORS)
        if "$ref" in node:
            is_more = not node.keys().isdisjoint(("properties", *COMBINATORS[1:]))
            target = find_reference(self._root, str(node["$ref"]), (*path, "$ref"))
            self._collect(target, seen, is_composed=is_composed or is_more)
        for i in range(len(node.get("allOf", []))):
            self._collect((*path, "allOf", str(i)), seen, is_composed=True)

    def _parameter(self, name: str) -> str:
        is_required = name in self._required
        paths = self._properties.get(name, [] if self._is_closed else self._others)
        schema: Schema = self._document.prepared(*paths, is_match_needed=False) if paths else True
        is_possible = has_instance(schema) and (name in self._properties or not self._is_closed)
        if not is_possible or not is_name(name):
            if is_required:
                why = (
                    "cannot be written between tags"
                    if is_possible
                    else "is required, but no value is allowed"
                )
                raise refuse(("properties", name), f"the parameter {why}")
            return ""
        value = self._value(parameter_types(self._root, name), schema, name)
        rule = self._grammar.rule(f"{self._grammar.literal(_opening(name))} {value}")
        return rule if is_required else f"{rule}?"

    def _further(self, names: list[str]) -> str:
        """Parameters that the schema does not list, under any other name."""
        unlisted = "\n"  # no parameter's name, so that the reader's types are those of any other one
        schema: Schema = (
            self._document.prepared(*self._others, is_match_needed=False) if self._others else True
        )
        if not has_instance(schema):
            return ""
        value = self._value(parameter_types(self._root, unlisted), schema, "additionalProperties")
        listed = "|".join(escaped(name) for name in names)
        key = r"/[^<>\n]+/" + (f" & ~/{listed}/" if names else "")
        opening = self._grammar.terminal(rf"/{escaped('<parameter=')}/ ({key}) />\n/")
        return f"{self._grammar.rule(f'{opening} {value}')}*"

    def _value(self, types: frozenset[str], schema: Schema, name: str) -> str:
        """The expression of a value and of the tag that closes it; `types` are the reader's."""
        if "string" not in types:
            return self._json(schema, types)
        branches = branches_of(schema)
        if branches is None:
            if not self._is_lenient:
                raise refuse(("properties", name), "it has too many alternatives")
            branches = [ANY_TEXT_BRANCH]
        is_bounded = any(branch.is_number_bounded and branch.values is None for branch in branches)
        bare = [self._text(branch, types, is_bounded) for branch in branches if "string" in branch.types]
        bare += [text for branch in branches for text in _scalars(branch, types)]
        allowed = frozenset().union(*(branch.types for branch in branches)) & types
        nested = allowed & (_NESTED | _NUMBERS if is_bounded else _NESTED)
        found = [self._json(schema, nested)] if nested else []
        if bare:
            found.append(self._grammar.terminal(f"({' | '.join(bare)}) /{escaped(_LINE_END)}/"))
        if not found:
            raise refuse(("properties", name), "none of its values can be written between tags")
        return self._grammar.rule(" | ".join(found))

    def _text(self, branch: Branch, types: frozenset[str], is_bounded: bool) -> str:
        """A text as it stands, unless the reader would take it for something else."""
        if branch.values is not None:
            texts = [text for text in branch.values if isinstance(text, str) and VALUE_END not in text]
            kept = [text for text in texts if json.loads(json_of(text, types)) == text]
            expression = f"/{'|'.join(escaped(text) for text in kept)}/" if kept else "/[^\\s\\S]/"
        elif branch.min_length or branch.max_length is not None:
            longest = "" if branch.max_length is None else branch.max_length
            expression = f"/(?s:.{{{branch.min_length},{longest}}})/"
        else:
            expression = f"/{ANY_TEXT}/"
        for pattern in branch.patterns:
            check_schema_source(json.dumps({"type": "string", "pattern": pattern}))
        parts = [expression, *(f"/{regex_to_lark(searching(pattern), 'dw')}/" for pattern in branch.patterns)]
        parts.append(f"~/{ANY_TEXT}{escaped(VALUE_END)}{ANY_TEXT}/")
        parts += [f"~/{_SPACE}{_SPELLINGS[name]}{_SPACE}/" for name in sorted(types & _SPELLINGS.keys())]
        if is_bounded and types & _NUMBERS:
            parts.append(f"~{_NUMBER_START}")
        for name in sorted(types & _BRACKETS.keys()):
            parts.append(f"~/{_SPACE}{_BRACKETS[name]}{ANY_TEXT}/")
        return f"({' & '.join(parts)})"

    def _json(self, schema: Schema, types: frozenset[str]) -> str:
        """A value as JSON, of these types alone."""
        branches = branches_of(schema)
        wide = {*types, "integer"} if "number" in types else types
        if branches is None or not all(branch.types <= wide for branch in branches):
            schema = restricted(schema, types)
        if types & _NESTED:
            schema = without_closing_tag(schema, VALUE_END)
        # Spaces as parts of the separators: of the same kind as the texts around, so that both can be told apart.
        source = schema_text(schema, whitespace_pattern=None, separators=self._separators)
        try:
            check_schema_source(source)
        except StructuredOutputError:
            if not self._is_lenient:
                raise
            loose = without_closing_tag({"type": sorted(types)}, VALUE_END)
            source = schema_text(loose, whitespace_pattern=None, separators=self._separators)
        return self._grammar.rule(
            f"{self._grammar.rule(f'%json {source}')} {self._grammar.literal(_LINE_END)}"
        )


def _opening(name: str) -> str:
    return f"<parameter={name}>\n"


def is_name(name: str) -> bool:
    """Whether a function or parameter of this name can be written in a tag."""
    return _NAME.fullmatch(name) is not None


def _scalars(branch: Branch, types: frozenset[str]) -> list[str]:
    """Values that are no texts and stand as their JSON."""
    scalar = types & branch.types & {"null", "boolean", "integer", "number"}
    if branch.values is not None:
        listed = [value for value in branch.values if exact_type(value) in scalar]
        return [f"/{escaped(json.dumps(value))}/" for value in listed]
    found = ["/null/"] if "null" in scalar else []
    found += ["/true|false/"] if "boolean" in scalar else []
    if scalar & _NUMBERS and not branch.is_number_bounded:
        found.append(f"/{_SPELLINGS['number' if 'number' in scalar else 'integer']}/")
    return found
