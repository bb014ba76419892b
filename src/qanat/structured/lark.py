"""Pieces of a grammar in llguidance's dialect of Lark: texts, tokens of the vocabulary, named parts."""

from __future__ import annotations

import re
from collections.abc import Callable

TokenId = Callable[[str], "int | None"]
"""The id of a token that the tokenizer adds to its vocabulary as a whole, by its spelling; None if it has none."""

ANY_TEXT = "(?s:.*)"
"""Regular expression of any text, in UTF-8."""

_MAYBE_TOKEN = re.compile(r"<[^<>\s]+>")


def escaped(text: str) -> str:
    """A regular expression that matches exactly this text."""
    return "".join(char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):X}}}" for char in text)


def without(text: str) -> str:
    """A terminal's expression: any text in which this one does not occur."""
    return f"/{ANY_TEXT}/ & ~/{ANY_TEXT}{escaped(text)}{ANY_TEXT}/"


class Grammar:
    """Collects the rules of one grammar under names of its own.

    Args:
        token_id: finds tokens, such as `<tool_call>`, that are written as themselves and never as text.
    """

    def __init__(self, token_id: TokenId) -> None:
        self._token_id = token_id
        self._lines: list[str] = []
        self._names: dict[str, str] = {}

    def rule(self, expression: str) -> str:
        """Names a rule; the same expression has one name."""
        return self._named("rule", expression)

    def terminal(self, expression: str) -> str:
        """Names a terminal: a regular expression, which nothing may interrupt."""
        return self._named("TEXT", expression)

    def literal(self, text: str) -> str:
        """An expression for exactly this text; what spells a token of the vocabulary is that token."""
        parts = []
        start = 0
        for found in _MAYBE_TOKEN.finditer(text):
            token_id = self._token_id(found[0])
            if token_id is not None:
                parts += [self._plain(text[start : found.start()]), f"<[{token_id}]>"]
                start = found.end()
        parts.append(self._plain(text[start:]))
        return " ".join(part for part in parts if part) or '""'

    def first_token(self, text: str) -> int | None:
        """The id of the token that this text begins with, where it begins with one."""
        found = _MAYBE_TOKEN.match(text)
        return self._token_id(found[0]) if found else None

    def text(self, start: str) -> str:
        """The whole grammar.

        Args:
            start: expression of the whole output.
        """
        return "\n".join(["%llguidance {}", f"start: {start}", *self._lines, ""])

    def _plain(self, text: str) -> str:
        return self.terminal(f"/{escaped(text)}/") if text else ""

    def _named(self, kind: str, expression: str) -> str:
        key = f"{kind}:{expression}"
        if key not in self._names:
            self._names[key] = f"{kind}_{len(self._names)}"
            self._lines.append(f"{self._names[key]}: {expression}")
        return self._names[key]
