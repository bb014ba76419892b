"""Calls as Qwen3.5 and Qwen3-Coder write them: <function=NAME>, <parameter=KEY> and values between lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import msgspec

from qanat.server.tools.state import CallState
from qanat.server.tools.values import is_surely_text, json_beginning
from qanat.structured.parameters import STRING, json_of, parameter_types

_FUNCTION = re.compile(r"<function=([^<>\n]+)>")
_PARAMETER = re.compile(r"<parameter=([^<>\n]+)>")
_FUNCTION_PREFIX = "<function="
_PARAMETER_PREFIX = "<parameter="
_FUNCTION_END = "</function>"
_VALUE_END = "</parameter>"
_CALL_END = "</tool_call>"


MAX_HELD_CHARS = 2000
"""A value that goes on for so long after the end of a function did not end there."""
NUM_TELLING_CHARS = 64
"""Beginning of a value that tells whether it is text."""


class _Part(Enum):
    HEAD = auto()
    BODY = auto()
    VALUE = auto()


class XmlCall:
    """One call; see `CallParser`. Values become JSON by the types that the tool's schema gives them.

    The call is certain once its function line is followed by a parameter or by the end of the function. A value ends
    at the first closing tag of its parameter; one newline at either end of it belongs to the format. Text values go
    out as they come, others when they are complete. If the model ends its turn without that tag, the value ends where
    the function does.

    Args:
        schemas: parameter schema of each tool, None where it has none.
    """

    def __init__(self, schemas: Mapping[str, Mapping[str, Any] | None]) -> None:
        self.state = CallState.OPENING
        self.name = ""
        self.rest = ""
        self._schemas = schemas
        self._part = _Part.HEAD
        self._text = ""
        self._arguments: list[str] = []
        self._num_parameters = 0
        self._types: frozenset[str] = STRING
        self._value: list[str] = []
        self._beginning = ""
        self._is_value_begun = False
        self._is_streaming = False

    @property
    def is_in_value(self) -> bool:
        """See `CallParser`."""
        return self._part is _Part.VALUE

    def push(self, text: str) -> None:
        """See `CallParser`."""
        self._text += text
        steps = {_Part.HEAD: self._read_head, _Part.BODY: self._read_body, _Part.VALUE: self._read_value}
        while self.state in (CallState.OPENING, CallState.OPEN) and steps[self._part]():
            pass

    def close(self) -> None:
        """See `CallParser`. The end of the function may be missing."""
        if self.state is CallState.OPEN and self._part is _Part.BODY and not self._text:
            self._end()
        else:
            self._fail()

    def finish(self, *, is_turn_over: bool) -> None:
        """See `CallParser`. A value without its end goes up to the end of the function, else to that of the output.

        At a cut, nothing goes out that may be an end: arguments stay a beginning of what they would have been.
        """
        if self.state is not CallState.OPEN or self._part is not _Part.VALUE:
            return
        held, self._text = self._text, ""
        end = held.find(_FUNCTION_END)
        if is_turn_over and end >= 0:
            self._take_value(held[:end].removesuffix("\n"))
            self._end_value()
            self._end()
            self.rest = held[end + len(_FUNCTION_END) :].lstrip().removeprefix(_CALL_END)
            return
        has_more = end >= 0 and not _CALL_END.startswith(held[end + len(_FUNCTION_END) :].strip())
        if is_turn_over or has_more:
            self._take_value(held)
        if not self._is_streaming:
            self._arguments.append(json_beginning("".join(self._value), self._types))

    def take_arguments(self) -> str:
        """See `CallParser`."""
        pieces, self._arguments = self._arguments, []
        return "".join(pieces)

    def _fail(self) -> None:
        self.state = CallState.BROKEN if self.state is CallState.OPEN else CallState.MALFORMED
        self.rest, self._text = self._text, ""

    def _read_head(self) -> bool:
        """Each reader returns whether it got on, so that the next one may try."""
        self._text = self._text.lstrip()
        if match := _FUNCTION.match(self._text):
            self.name = match[1]
            self._text = self._text[match.end() :]
            self._part = _Part.BODY
            return True
        if not _may_become(self._text, _FUNCTION_PREFIX):
            self._fail()
        return False

    def _read_body(self) -> bool:
        self._text = self._text.lstrip()
        if match := _PARAMETER.match(self._text):
            self._begin_parameter(match[1])
            self._text = self._text[match.end() :]
            return True
        if self._text.startswith(_FUNCTION_END):
            self._text = self._text[len(_FUNCTION_END) :]
            self._end()
        elif not (_FUNCTION_END.startswith(self._text) or _may_become(self._text, _PARAMETER_PREFIX)):
            self._fail()
        return False

    def _end(self) -> None:
        self._arguments.append("}" if self._num_parameters else "{}")
        self.state = CallState.DONE
        self.rest, self._text = self._text, ""

    def _begin_parameter(self, key: str) -> None:
        self.state = CallState.OPEN
        self._arguments.append((", " if self._num_parameters else "{") + _quoted(key) + ": ")
        self._num_parameters += 1
        self._types = parameter_types(self._schemas.get(self.name), key)
        self._part = _Part.VALUE
        self._value = []
        self._beginning = ""
        self._is_value_begun = self._is_streaming = False

    def _read_value(self) -> bool:
        if not self._is_value_begun:
            if not self._text:
                return False
            self._is_value_begun = True
            self._text = self._text.removeprefix("\n")
        end = self._text.find(_VALUE_END)
        if end >= 0:
            self._take_value(self._text[:end].removesuffix("\n"))
            self._text = self._text[end + len(_VALUE_END) :]
            self._end_value()
            return True
        num_certain = len(self._text) - _num_held(self._text)
        self._take_value(self._text[:num_certain])
        self._text = self._text[num_certain:]
        return False

    def _take_value(self, text: str) -> None:
        if not text:
            return
        if self._is_streaming:
            self._arguments.append(_quoted(text)[1:-1])
            return
        self._value.append(text)
        if len(self._beginning) < NUM_TELLING_CHARS:
            self._beginning += text
        if is_surely_text(self._beginning[:NUM_TELLING_CHARS], self._types):
            self._is_streaming = True
            self._arguments.append(_quoted("".join(self._value))[:-1])

    def _end_value(self) -> None:
        self._arguments.append('"' if self._is_streaming else json_of("".join(self._value), self._types))
        self._part = _Part.BODY


def function_line(name: str) -> str:
    """The line that a call to this function begins with."""
    return f"{_FUNCTION_PREFIX}{name}>"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _may_become(text: str, prefix: str) -> bool:
    """Whether the prefix and an unfinished name stand here, as far as they go."""
    if len(text) <= len(prefix):
        return prefix.startswith(text)
    return text.startswith(prefix) and not any(character in "<>\n" for character in text[len(prefix) :])


def _num_held(text: str) -> int:
    """Length of the end of the text that may be, or begin, the end of a value or of the whole call."""
    at = text.find(_FUNCTION_END, max(0, len(text) - MAX_HELD_CHARS))
    if at >= 0:
        return len(text) - at + text[:at].endswith("\n")
    longest = max(len(_VALUE_END), len(_FUNCTION_END))
    for length in range(min(longest, len(text)), 0, -1):
        tail = text[-length:].removeprefix("\n")
        if _VALUE_END.startswith(tail) or _FUNCTION_END.startswith(tail):
            return length
    return 0
