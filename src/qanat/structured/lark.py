"""Pieces of a grammar in llguidance's dialect of Lark: texts, tokens of the vocabulary, named parts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

TokenId = Callable[[str], "int | None"]
"""The id of a token that the tokenizer adds to its vocabulary as a whole, by its spelling; None if it has none."""

ANY_TEXT = "(?s:.*)"
"""Regular expression of any text, in UTF-8."""

_MAYBE_TOKEN = re.compile(r"<[^<>\s]+>")


def escaped(text: str) -> str:
    """A regular expression that matches exactly this text."""
    return "".join(char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):X}}}" for char in text)


def one_of_texts(texts: Sequence[str]) -> str:
    """A regular expression that matches exactly these texts."""
    return "|".join(escaped(text) for text in texts)


def pieces_of(text: str, token_id: TokenId) -> list[str | int]:
    """A text cut into plain texts, none of them empty, and the ids of tokens that it spells."""
    pieces: list[str | int] = []
    start = 0
    for found in _MAYBE_TOKEN.finditer(text):
        number = token_id(found[0])
        if number is not None:
            pieces += [text[start : found.start()], number]
            start = found.end()
    return [piece for piece in (*pieces, text[start:]) if piece != ""]


class Grammar:
    """Collects the rules of one grammar under names of its own.

    Args:
        token_id: finds tokens, such as `<tool_call>`, that are written as themselves and never as text.
    """

    def __init__(self, token_id: TokenId) -> None:
        self._token_id = token_id
        self._lines: list[str] = []
        self._names: dict[str, str] = {}
        self._subgrammars: dict[str, str] = {}

    def rule(self, expression: str) -> str:
        """Names a rule; the same expression has one name."""
        return self._named("rule", expression)

    def terminal(self, expression: str) -> str:
        """Names a terminal: a regular expression, which nothing may interrupt."""
        return self._named("TEXT", expression)

    def literal(self, text: str) -> str:
        """An expression for exactly this text; what spells a token of the vocabulary is that token."""
        pieces = pieces_of(text, self._token_id)
        parts = [self._plain(piece) if isinstance(piece, str) else f"<[{piece}]>" for piece in pieces]
        return " ".join(parts) or '""'

    def lazy(self, terminal: str) -> str:
        """Names a rule that ends as soon as its terminal can."""
        return self._named("lazy", terminal)

    def text_without(self, texts: Sequence[str]) -> str:
        """A terminal's expression: any text in which none of these occurs."""
        avoided = [f"~/{ANY_TEXT}{escaped(text)}{ANY_TEXT}/" for text in dict.fromkeys(texts)]
        return " & ".join([f"/{ANY_TEXT}/", *avoided])

    def token_in(self, text: str) -> int | None:
        """Where in a text the first token stands that is written as itself; None if there is none."""
        for found in _MAYBE_TOKEN.finditer(text):
            if self._token_id(found[0]) is not None:
                return found.start()
        return None

    def first_token(self, text: str) -> int | None:
        """The id of the token that this text begins with, where it begins with one."""
        found = _MAYBE_TOKEN.match(text)
        return self._token_id(found[0]) if found else None

    def subgrammar(self, source: str) -> str:
        """An expression for another grammar of its own, whose rules may have any names."""
        if source not in self._subgrammars:
            self._subgrammars[source] = f"part_{len(self._subgrammars)}"
        return f"@{self._subgrammars[source]}"

    def text(self, start: str) -> str:
        """The whole grammar.

        Args:
            start: expression of the whole output.
        """
        main = "\n".join(["%llguidance {}", f"start: {start}", *self._lines, ""])
        if not self._subgrammars:
            return main
        parts = [{"name": name, "lark_grammar": source} for source, name in self._subgrammars.items()]
        return json.dumps({"grammars": [{"name": "main", "lark_grammar": main}, *parts]})

    def _plain(self, text: str) -> str:
        return self.terminal(f"/{escaped(text)}/")

    def _named(self, kind: str, expression: str) -> str:
        key = f"{kind}:{expression}"
        if key not in self._names:
            self._names[key] = f"{kind}_{len(self._names)}"
            mark = "[lazy]" if kind == "lazy" else ""
            self._lines.append(f"{self._names[key]}{mark}: {expression}")
        return self._names[key]
