"""Calls as JSON, as Qwen3 writes them: {"name": ..., "arguments": {...}}."""

from __future__ import annotations

from enum import Enum, auto

import msgspec

from qanat.server.tools.state import CallState
from qanat.structured.mending import JsonMender

_ARGUMENTS = ("arguments", "parameters")
"""Names of the same key; models fall into the second, which is the word of the definitions that they are shown."""
_SPACE = " \t\r\n"


class _Expect(Enum):
    """What the next character of the outer object belongs to."""

    OBJECT = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    IN_VALUE = auto()
    COMMA = auto()


class HermesCall:
    """One call; see `CallParser`. The arguments are passed on as the model wrote them, mended where that is no JSON.

    The call is certain once the name is known and the arguments begin, or the object ends without any. Arguments
    that are JSON text in a string are unpacked. Keys other than name and arguments have no place in a reply and are
    dropped. Strings are followed exactly, so that tags and brackets inside them are text.
    """

    def __init__(self) -> None:
        self.state = CallState.OPENING
        self.name = ""
        self.rest = ""
        self._expect = _Expect.OBJECT
        self._key = ""
        self._token: list[str] = []
        self._is_in_string = False
        self._is_escaped = False
        self._depth = 0
        self._arguments: list[str] = []
        self._mender = JsonMender()
        self._has_arguments = False

    @property
    def is_in_value(self) -> bool:
        """See `CallParser`."""
        return self._is_in_string

    def push(self, text: str) -> None:
        """See `CallParser`."""
        for i, character in enumerate(text):
            self._take(character)
            if self.state not in (CallState.OPENING, CallState.OPEN):
                self.rest = text[i + 1 :] if self.state is CallState.DONE else text[i:]
                return

    def close(self) -> None:
        """See `CallParser`. Closing brackets of the outer object may be missing."""
        if self._expect is _Expect.IN_VALUE and self._depth == 0:
            self._end_value()
        if self.state in (CallState.OPENING, CallState.OPEN):
            if self._expect is _Expect.COMMA:
                self._end_object()
            else:
                self._fail()

    def finish(self, *, is_turn_over: bool) -> None:
        """See `CallParser`. Arguments go out as they come, so none are held back."""

    def take_arguments(self) -> str:
        """See `CallParser`."""
        pieces, self._arguments = self._arguments, []
        return "".join(pieces)

    def _take(self, character: str) -> None:
        if self._expect is _Expect.IN_VALUE:
            self._take_in_value(character)
        elif self._is_in_string:  # of a key
            self._token.append(character)
            if self._ends_string(character):
                self._end_key()
        elif character in _SPACE:
            return
        elif self._expect is _Expect.OBJECT and character == "{":
            self._expect = _Expect.KEY
        elif self._expect is _Expect.KEY and character == '"':
            self._is_in_string = True
            self._token = ['"']
        elif self._expect is _Expect.COLON and character == ":":
            self._expect = _Expect.VALUE
        elif self._expect is _Expect.VALUE and character not in ",}]:":
            self._begin_value(character)
        elif self._expect is _Expect.COMMA and character == ",":
            self._expect = _Expect.KEY
        elif character == "}" and self._expect in (_Expect.COMMA, _Expect.KEY):
            self._end_object()
        else:
            self._fail()

    def _fail(self) -> None:
        self.state = CallState.BROKEN if self.state is CallState.OPEN else CallState.MALFORMED

    def _ends_string(self, character: str) -> bool:
        """Follows one character inside a string."""
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self._is_in_string = False
            return True
        return False

    def _end_key(self) -> None:
        key = _decoded("".join(self._token))
        if not isinstance(key, str):
            self._fail()
            return
        self._key = _ARGUMENTS[0] if key in _ARGUMENTS and not self._has_arguments else key
        self._expect = _Expect.COLON

    def _begin_value(self, character: str) -> None:
        self._expect = _Expect.IN_VALUE
        self._token = []
        if self._key == "arguments" and self._has_arguments:
            self._fail()
            return
        if self._key == "arguments" and character == "{":
            self._has_arguments = True
            self._begin_if_certain()
        self._take_in_value(character)

    def _take_in_value(self, character: str) -> None:
        if self._is_in_string:
            self._keep(character)
            if self._ends_string(character) and self._depth == 0:
                self._end_value()
        elif self._depth == 0 and character in ",}" + _SPACE:
            self._end_value()
            if self.state in (CallState.OPENING, CallState.OPEN):
                self._take(character)
        else:
            self._keep(character)
            self._is_in_string = character == '"'
            self._depth += (character in "{[") - (character in "}]")
            if self._depth < 0:
                self._fail()
            elif self._depth == 0 and character in "}]":
                self._end_value()

    def _keep(self, character: str) -> None:
        """Arguments that are an object go out as they come; everything else is read when it is complete."""
        is_passed_on = self._key == "arguments" and (self._token or [character])[0] == "{"
        if is_passed_on:
            self._token = ["{"]
            self._arguments.append(self._mender.push(character))
        else:
            self._token.append(character)

    def _end_value(self) -> None:
        self._expect = _Expect.COMMA
        if self._key == "name":
            name = _decoded("".join(self._token))
            if not isinstance(name, str) or not name or self.name:
                self._fail()
                return
            self.name = name
            if self._has_arguments:
                self._begin_if_certain()
        elif self._key == "arguments" and self._token != ["{"]:
            self._unpack("".join(self._token))

    def _unpack(self, value: str) -> None:
        """Arguments that are not an object: null and "" are none, a string may hold the object as text."""
        if value in ("null", '""'):
            return
        inner = _decoded(value)
        if not isinstance(inner, str) or not isinstance(_decoded(inner), dict):
            self._fail()
            return
        self._arguments.append(inner)
        self._has_arguments = True
        self._begin_if_certain()

    def _begin_if_certain(self) -> None:
        if self.name and self.state is CallState.OPENING:
            self.state = CallState.OPEN

    def _end_object(self) -> None:
        if not self.name:
            self._fail()
            return
        if not self._has_arguments:
            self._arguments.append("{}")
        self.state = CallState.DONE


def _decoded(text: str) -> object:
    """The JSON value; None also for text that is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
