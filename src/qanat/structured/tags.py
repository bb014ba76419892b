"""Structural tags as one grammar: texts, tags with structured contents, and free text between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from qanat.core.errors import StructuredOutputError
from qanat.structured.lark import Grammar, escaped
from qanat.structured.tag_fields import Format, list_of, object_of, text_of

MAX_FORMATS = 10_000
"""Formats within one structural tag."""
MAX_DEPTH = 50
"""Levels of nesting."""

FUNCTION = "function"
"""Field of a format that holds a schema: the function whose arguments it is about, for messages."""

Ends = Sequence[str]
ContentRule = Callable[[Format], str]
"""Makes the expression of a format that holds a schema, an expression or a grammar."""


def decoded_tag(tag: str | Mapping[str, Any]) -> Format:
    """The format of a structural tag, in either of its two spellings.

    Raises:
        StructuredOutputError: it is not JSON, or has neither `format` nor `structures` and `triggers`.
    """
    if isinstance(tag, str):
        try:
            tag = msgspec.json.decode(tag)
        except (msgspec.DecodeError, RecursionError) as error:
            raise StructuredOutputError(f"The structural tag is not JSON: {error}") from None
    if not isinstance(tag, Mapping):
        raise StructuredOutputError("The structural tag must be an object.")
    if "format" in tag:
        return object_of(tag["format"], "format")
    if "structures" not in tag or "triggers" not in tag:
        raise StructuredOutputError("The structural tag needs format, or structures and triggers.")
    structures = [object_of(item, "structures") for item in list_of(tag, "structures")]
    tags = [
        {
            "type": "tag",
            "begin": item.get("begin"),
            "content": {"type": "json_schema", "json_schema": item.get("schema", {})},
            "end": item.get("end"),
        }
        for item in structures
    ]
    return {"type": "triggered_tags", "triggers": list_of(tag, "triggers"), "tags": tags}


class TagGrammar:
    """Writes formats into a grammar.

    Args:
        grammar: takes the rules.
        contents: makes the expressions of formats that hold schemas, expressions or grammars, by their type.
    """

    def __init__(self, grammar: Grammar, contents: Mapping[str, ContentRule]) -> None:
        self._grammar = grammar
        self._contents = contents
        self._num_formats = 0
        self._composed: dict[str, Callable[[Format, Ends, int], str]] = {
            "const_string": self._const_string,
            "any_text": self._any_text,
            "sequence": self._sequence,
            "or": self._or,
            "optional": self._repeated,
            "plus": self._repeated,
            "star": self._repeated,
            "tag": self._tag,
            "triggered_tags": self._triggered_tags,
            "tags_with_separator": self._tags_with_separator,
            "structural_tag": self._inner_tag,
        }

    def expression(self, node: Any, ends: Ends = (), depth: int = 0) -> str:
        """The expression of a format and of what ends it.

        Args:
            node: the format.
            ends: one of these texts comes after it and is part of the expression; none if it ends the output.
            depth: of nesting.

        Raises:
            StructuredOutputError: the format is malformed or not supported.
        """
        node = object_of(node, "format")
        self._num_formats += 1
        if self._num_formats > MAX_FORMATS or depth > MAX_DEPTH:
            raise StructuredOutputError(
                f"The structural tag has more than {MAX_FORMATS} formats or {MAX_DEPTH} levels in it."
            )
        kind = node.get("type")
        if kind in self._composed:
            return self._composed[kind](node, ends, depth + 1)
        if kind in self._contents:
            with naming_function(node):
                return self._ended(self._contents[kind](node), ends)
        known = ", ".join(sorted({*self._composed, *self._contents}))
        raise StructuredOutputError(
            f"The structural tag's format type {kind!r} is not supported; types are {known}."
        )

    def _inner_tag(self, node: Format, ends: Ends, depth: int) -> str:
        return self.expression(decoded_tag(node.get("structural_tag", node)), ends, depth)

    def _const_string(self, node: Format, ends: Ends, depth: int) -> str:
        return self._ended(self._grammar.literal(text_of(node, "value")), ends)

    def _any_text(self, node: Format, ends: Ends, depth: int) -> str:
        if node.get("max_tokens") is not None or node.get("max_chars") is not None:
            raise StructuredOutputError("The structural tag's any_text cannot be bounded; leave max_* out.")
        return self._text_until(ends, _texts(node, "excludes", default=()))

    def _sequence(self, node: Format, ends: Ends, depth: int) -> str:
        elements = [object_of(element, "elements") for element in list_of(node, "elements")]
        parts = []
        for i, element in enumerate(elements):
            if i == len(elements) - 1:
                parts.append(self.expression(element, ends, depth))
            elif _is_open(element):
                parts.append(self._before(element, elements[i + 1], depth))
            else:
                parts.append(self.expression(element, (), depth))
        return self._rule(" ".join(parts) if parts else self._ended('""', ends))

    def _before(self, element: Format, following: Format, depth: int) -> str:
        """Free text in front of what must begin with a token, as free text cannot contain one."""
        starts = _starts(following)
        if not starts or any(self._grammar.first_token(start) is None for start in starts):
            raise StructuredOutputError(
                "The structural tag has free text in a sequence in front of what may be a part of that text; put it "
                "into a tag, or use triggered_tags."
            )
        return self.expression(element, (), depth)

    def _or(self, node: Format, ends: Ends, depth: int) -> str:
        elements = list_of(node, "elements")
        if not elements:
            raise StructuredOutputError("The structural tag's or needs elements.")
        return self._one_of([self.expression(element, ends, depth) for element in elements])

    def _repeated(self, node: Format, ends: Ends, depth: int) -> str:
        content = object_of(node.get("content"), "content")
        if _is_open(content):
            raise StructuredOutputError(f"The structural tag's {node['type']} cannot repeat free text.")
        sign = {"optional": "?", "plus": "+", "star": "*"}[node["type"]]
        return self._ended(f"{self._rule(self.expression(content, (), depth))}{sign}", ends)

    def _tag(self, node: Format, ends: Ends, depth: int) -> str:
        begin = text_of(node, "begin")
        return self._ended(f"{self._grammar.literal(begin)} {self._tag_after(node, depth)}", ends)

    def _tag_after(self, node: Format, depth: int) -> str:
        """A tag without its beginning."""
        end = node.get("end", "")
        own_ends = [end] if isinstance(end, str) else _texts(node, "end")
        return self.expression(node.get("content"), [text for text in own_ends if text], depth)

    def _tags_with_separator(self, node: Format, ends: Ends, depth: int) -> str:
        tag = self._one_of([self.expression(tag, (), depth) for tag in _tags(node)])
        separator = self._grammar.literal(text_of(node, "separator"))
        several = tag if _flag(node, "stop_after_first") else self._rule(f"{tag} ({separator} {tag})*")
        return self._ended(several if _flag(node, "at_least_one") else f"{several}?", ends)

    def _triggered_tags(self, node: Format, ends: Ends, depth: int) -> str:
        triggers, excludes = _texts(node, "triggers"), _texts(node, "excludes", default=())
        if not triggers or not all(triggers):
            raise StructuredOutputError("The structural tag needs triggers, none of them empty.")
        followers: dict[str, list[str]] = {trigger: [] for trigger in triggers}
        for tag in _tags(node):
            begin = text_of(tag, "begin")
            own = [trigger for trigger in triggers if begin.startswith(trigger)]
            if len(own) != 1:
                raise StructuredOutputError(
                    f"The structural tag's begin {begin!r} must start with exactly one trigger."
                )
            rest = begin.removeprefix(own[0])
            followers[own[0]].append(
                self._rule(f"{self._grammar.literal(rest)} {self._tag_after(tag, depth)}")
            )
        tags = {trigger: self._one_of(rules) for trigger, rules in followers.items() if rules}
        tail = self._text_until(ends, [*excludes, *triggers])
        at_once = self._one_of([f"{self._grammar.literal(trigger)} {rest}" for trigger, rest in tags.items()])
        later = self._one_of(
            [
                f"{self._text_until([trigger], [*excludes, *triggers])} {rest}"
                for trigger, rest in tags.items()
            ]
        )
        if _flag(node, "stop_after_first"):
            return (
                self._ended(at_once, ends)
                if _flag(node, "at_least_one")
                else f"({self._ended(later, ends)} | {tail})"
            )
        return f"{at_once} {later}* {tail}" if _flag(node, "at_least_one") else f"{later}* {tail}"

    def _text_until(self, ends: Ends, excludes: Sequence[str]) -> str:
        """Free text up to the first of the texts that end it, these included; to the end of the output without any."""
        plain = [text for text in (*ends, *excludes) if self._grammar.token_in(text) is None]
        free = self._grammar.text_without(plain)
        if not ends:
            return self._grammar.terminal(free)
        by_text = [text for text in ends if self._grammar.token_in(text) is None]
        found = []
        if by_text:
            closing = "|".join(escaped(text) for text in by_text)
            found.append(self._grammar.lazy(self._grammar.terminal(f"({free}) /{closing}/")))
        for end in ends:
            at = self._grammar.token_in(end)
            if at is not None:
                before = self._grammar.terminal(f"({free}) /{escaped(end[:at])}/" if at else free)
                found.append(f"{before} {self._grammar.literal(end[at:])}")
        return self._one_of(found)

    def _ended(self, expression: str, ends: Ends) -> str:
        if not ends:
            return expression
        return f"{expression} {self._one_of([self._grammar.literal(end) for end in ends])}"

    def _one_of(self, expressions: Sequence[str]) -> str:
        unique = list(dict.fromkeys(expressions))
        return self._rule(" | ".join(unique))

    def _rule(self, expression: str) -> str:
        return self._grammar.rule(expression)


@contextmanager
def naming_function(node: Format) -> Iterator[None]:
    """What is wrong within a format about a function is told as a fault of that function."""
    try:
        yield
    except (StructuredOutputError, ValueError) as error:
        if FUNCTION not in node:
            raise
        why = error.message if isinstance(error, StructuredOutputError) else error
        raise StructuredOutputError(f"The function {node[FUNCTION]!r}: {why}", param="tools") from None


def _is_open(node: Format) -> bool:
    """Whether free text may stand at the end of a format."""
    kind = node.get("type")
    if kind in ("sequence", "or"):
        inner = [element for element in list_of(node, "elements") if isinstance(element, Mapping)]
        return any(_is_open(element) for element in (inner[-1:] if kind == "sequence" else inner))
    return kind in ("any_text", "triggered_tags")


def _starts(node: Format) -> list[str]:
    """Texts of which a format begins with one; none if that is not known."""
    kind = node.get("type")
    if kind == "const_string":
        return [text_of(node, "value")]
    if kind == "tag":
        return [text_of(node, "begin")]
    if kind == "tags_with_separator" and _flag(node, "at_least_one"):
        return [text_of(tag, "begin") for tag in _tags(node)]
    return []


def _tags(node: Format) -> list[Format]:
    tags = [object_of(tag, "tags") for tag in list_of(node, "tags")]
    if not tags or any(tag.get("type", "tag") != "tag" for tag in tags):
        raise StructuredOutputError("The structural tag's tags must be a list of formats of type tag.")
    return [{**tag, "type": "tag"} for tag in tags]


def _texts(node: Format, name: str, *, default: Sequence[str] | None = None) -> Sequence[str]:
    if default is not None and node.get(name) is None:
        return default
    values = list_of(node, name)
    if not all(isinstance(value, str) for value in values):
        raise StructuredOutputError(f"The structural tag's {name} must be a list of texts.")
    return values


def _flag(node: Format, name: str) -> bool:
    value = node.get(name, False)
    if not isinstance(value, bool):
        raise StructuredOutputError(f"The structural tag's {name} must be true or false.")
    return value
