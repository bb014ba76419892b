"""Reads values that Python has printed: dicts, lists, names with arguments, enumeration members.

vLLM prints its settings that way, and JSON among them. Only data is built; nothing is evaluated.
"""

from __future__ import annotations

import ast
import re
from typing import Any

MAX_DEPTH = 20

_SPACE = re.compile(r"[\s]*")
_TEXT = re.compile(r"[bru]?'(?:[^'\\]|\\.)*'|[bru]?\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?|\.\d+|inf|nan)(?![\w.])")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_MEMBER = re.compile(r"<(?:[\w.]*\.)?(?P<name>\w+)(?::[^<>]*)?>")
_OTHER = re.compile(r"<[^<>]*>")
_CONSTANTS = {"None": None, "null": None, "True": True, "true": True, "False": False, "false": False}
_CLOSING = {"[": "]", "(": ")", "{": "}"}


class ValueFault(ValueError):
    """The text is no value that can be read, or ends early."""


def read_python_value(text: str) -> tuple[Any, int]:
    """The value at the beginning of `text`, and how many characters it takes.

    Dicts become dicts with text keys, sequences lists, members of enumerations (`<Mode.FULL: 2>`) their names, and
    `Name(a=1)` a dict of its keyword arguments.

    Raises:
        ValueFault: it cannot be read.
    """
    reader = _Reader(text)
    value = reader.value(0)
    return value, reader.at


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueFault("nested too deep")
        self.space()
        opening = self.text[self.at : self.at + 1]
        if opening in ("[", "("):
            return self.sequence(depth)
        if opening == "{":
            return self.mapping(depth)
        if opening == "<":
            match = self.take(_MEMBER) or self.take(_OTHER)
            if match is None:
                raise ValueFault("a < without its end")
            return match.groupdict().get("name") or match.group()
        return self.plain(depth)

    def plain(self, depth: int) -> Any:
        text = self.take(_TEXT)
        if text is not None:
            try:
                read = ast.literal_eval(text.group())
            except (ValueError, SyntaxError) as error:
                raise ValueFault(str(error)) from None
            return read.decode("utf-8", "replace") if isinstance(read, bytes) else read
        number = self.take(_NUMBER)
        if number is not None:
            written = number.group().replace("_", "")
            return int(written) if written.lstrip("+-").isdigit() else float(written)
        name = self.take(_NAME)
        if name is None:
            raise ValueFault(f"no value at character {self.at}")
        if name.group() in _CONSTANTS:
            return _CONSTANTS[name.group()]
        if self.text[self.at : self.at + 1] == "(":
            return self.arguments(depth)
        return name.group()

    def sequence(self, depth: int) -> list[Any]:
        closing = _CLOSING[self.text[self.at]]
        self.at += 1
        items: list[Any] = []
        while not self.closes(closing):
            items.append(self.value(depth + 1))
            self.comma(closing)
        return items

    def mapping(self, depth: int) -> Any:
        self.at += 1
        pairs: dict[str, Any] = {}
        is_set = False
        while not self.closes("}"):
            key = self.value(depth + 1)
            self.space()
            if self.text[self.at : self.at + 1] == ":":
                self.at += 1
                pairs[str(key)] = self.value(depth + 1)
            else:
                is_set = True
                pairs[str(key)] = key
            self.comma("}")
        return list(pairs.values()) if is_set else pairs

    def arguments(self, depth: int) -> dict[str, Any]:
        self.at += 1
        named: dict[str, Any] = {}
        while not self.closes(")"):
            self.space()
            match = re.compile(r"(\w+)\s*=").match(self.text, self.at)
            if match is not None:
                self.at = match.end()
            named[match.group(1) if match else str(len(named))] = self.value(depth + 1)
            self.comma(")")
        return named

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def space(self) -> None:
        self.take(_SPACE)

    def closes(self, closing: str) -> bool:
        self.space()
        if self.at >= len(self.text):
            raise ValueFault("it ends early")
        if self.text[self.at] == closing:
            self.at += 1
            return True
        return False

    def comma(self, closing: str) -> None:
        self.space()
        following = self.text[self.at : self.at + 1]
        if following == ",":
            self.at += 1
        elif following != closing:
            raise ValueFault(f"expected , or {closing} at character {self.at}")
