"""JSON out of what models write in its place: raw line ends in texts, escapes that it does not know, Python's words."""

from __future__ import annotations

import json

_ESCAPES = frozenset('"\\/bfnrt')
_HEX = frozenset("0123456789abcdefABCDEF")
_NUM_HEX = 4
_WORDS = {"True": "true", "False": "false", "None": "null"}
_BY_INITIAL = {word[0]: (word, meant) for word, meant in _WORDS.items()}


class JsonMender:
    """Reads a value piece by piece. What is JSON stays as it is, and a beginning becomes the beginning of the whole.

    Args:
        quotes: characters that texts stand between: the double quote, and Python's other one if it is to be understood.
    """

    def __init__(self, quotes: str = '"') -> None:
        self._quotes = quotes
        self._quote = ""
        self._escape = ""
        self._word = ""
        self._meant = ""

    def push(self, text: str) -> str:
        """What is certain to be a part of the result with these characters."""
        return "".join([self._take(character) for character in text])

    def _take(self, character: str) -> str:
        if self._escape:
            return self._take_escaped(character)
        if self._quote:
            return self._take_in_text(character)
        if self._word.startswith(character) and self._word:
            mended, self._word, self._meant = self._meant[0], self._word[1:], self._meant[1:]
            return mended
        self._word = ""
        if character in self._quotes:
            self._quote = character
            return '"'
        if character in _BY_INITIAL:
            word, meant = _BY_INITIAL[character]
            self._word, self._meant = word[1:], meant[1:]
            return meant[0]
        return character

    def _take_in_text(self, character: str) -> str:
        if character == self._quote:
            self._quote = ""
            return '"'
        if character == "\\":
            self._escape = character
            return ""
        if character == '"' or character < " ":
            return json.dumps(character)[1:-1]
        return character

    def _take_escaped(self, character: str) -> str:
        """An escape is held back until it is known to be one; if it is none, its backslash is a character."""
        held, self._escape = self._escape, self._escape + character
        if len(held) == 1 and character == "u":
            return ""
        if len(held) > 1 and character in _HEX:
            if len(held) < 1 + _NUM_HEX:
                return ""
            character = self._escape[1:]
        self._escape = ""
        if len(held) == 1 and character in _ESCAPES or len(character) > 1:
            return "\\" + character
        if held == "\\" and character == self._quote:
            return character
        return "\\\\" + held[1:] + self._take_in_text(character)


def mended(text: str) -> str:
    """A whole value, with texts between either quote."""
    return JsonMender("\"'").push(text)
