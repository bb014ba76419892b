"""JSON arguments decoded with a place for every key and value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from qanat.deploy.sources.values import Place, Value

MAX_DEPTH = 64
_BLANKS = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_VARIABLE = re.compile(r"\$\w+|\$\{[^}]*\}|\$\([^)]*\)|<[^<>\"]+>")
_LEFT_OUT = re.compile(r"\.{3}|…")
"""What guides write for members that do not matter there."""
_WORDS = {"true": True, "false": False, "null": None}


class Unknown:
    """Stands for a JSON value that a variable nobody sets, or the reader, will fill in."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


@dataclass(frozen=True)
class JsonNode:
    """A JSON value.

    Attributes:
        value: decoded; objects and lists hold plain values, `UNKNOWN` among them where nobody can know.
        place: where it stands.
        key_place: where the key before it stands, quotes included; None outside objects.
        members: of an object, by key; of keys given twice the last.
        items: of a list.
        repeated: keys given more than once.
    """

    value: object
    place: Place
    key_place: Place | None = None
    members: dict[str, JsonNode] = field(default_factory=dict)
    items: tuple[JsonNode, ...] = ()
    repeated: tuple[str, ...] = ()

    def get(self, *keys: str) -> JsonNode | None:
        """The member under a path of keys; None if there is none."""
        node: JsonNode | None = self
        for key in keys:
            node = node.members.get(key) if node is not None else None
        return node

    def walk(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], JsonNode]]:
        """Every member below it with its path of keys, outermost first."""
        for key, member in self.members.items():
            yield (*path, key), member
            yield from member.walk((*path, key))


@dataclass(frozen=True)
class JsonFault:
    """Why text is no JSON.

    Attributes:
        message: what is wrong.
        place: where.
    """

    message: str
    place: Place


class _Fault(Exception):
    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.message, self.start, self.end = message, start, end


def read_json(value: Value) -> JsonNode | JsonFault:
    """Decodes a value; variables that nobody sets count as values."""
    reader = _Reader(value)
    try:
        node, end = reader.read(reader.skip(0), 0, None)
        end = reader.skip(end)
        if end < len(value.text):
            raise _Fault("text behind the end of the JSON", end, len(value.text))
    except _Fault as fault:
        return JsonFault(fault.message, value.place_of(fault.start, max(fault.end, fault.start + 1)))
    return node


class _Reader:
    def __init__(self, value: Value) -> None:
        self.value = value
        self.text = value.text

    def skip(self, at: int) -> int:
        match = _BLANKS.match(self.text, at)
        return match.end() if match else at

    def read(self, at: int, depth: int, key_place: Place | None) -> tuple[JsonNode, int]:
        if depth > MAX_DEPTH:
            raise _Fault(f"nested deeper than {MAX_DEPTH}", at, at + 1)
        if at >= len(self.text):
            raise _Fault("the JSON ends too early", max(0, at - 1), at)
        if self.text[at] == "{":
            return self._object(at, depth, key_place)
        if self.text[at] == "[":
            return self._list(at, depth, key_place)
        return self._scalar(at, key_place)

    def _scalar(self, at: int, key_place: Place | None) -> tuple[JsonNode, int]:
        decoded: object
        if match := _STRING.match(self.text, at):
            decoded = self._string(match)
        elif match := _NUMBER.match(self.text, at):
            decoded = json.loads(match.group()) if len(match.group()) < 300 else float("inf")
        elif match := _VARIABLE.match(self.text, at):
            decoded = UNKNOWN
        else:
            match = re.compile(r"[^\s,:\[\]{}]+").match(self.text, at)
            word = match.group() if match else self.text[at]
            if match is None or word not in _WORDS:
                raise _Fault(_why_no_value(word), at, at + len(word))
            decoded = _WORDS[word]
        return JsonNode(decoded, self.value.place_of(at, match.end()), key_place), match.end()

    def _string(self, match: re.Match[str]) -> str:
        try:
            return str(json.loads(match.group()))
        except ValueError:
            raise _Fault("a string with a wrong escape", match.start(), match.end()) from None

    def _object(self, start: int, depth: int, key_place: Place | None) -> tuple[JsonNode, int]:
        members: dict[str, JsonNode] = {}
        repeated: list[str] = []
        at = self.skip(start + 1)
        while not self.text.startswith("}", at):
            if left_out := _LEFT_OUT.match(self.text, at):
                at = self._comma(self.skip(left_out.end()), "}")
                continue
            match = _STRING.match(self.text, at)
            if match is None:
                stray = "a backslash inside quotes stays where it is; JSON over several lines needs none"
                is_stray = self.text.startswith("\\\n", at)
                raise _Fault(stray if is_stray else "a key in double quotes was expected", at, at + 1)
            key, colon = self._string(match), self.skip(match.end())
            if not self.text.startswith(":", colon):
                raise _Fault(f"a colon was expected behind the key {match.group()}", at, match.end())
            if key in members:
                repeated.append(key)
            place = self.value.place_of(match.start(), match.end())
            members[key], at = self.read(self.skip(colon + 1), depth + 1, place)
            at = self._comma(self.skip(at), "}")
        plain = {key: node.value for key, node in members.items()}
        place = self.value.place_of(start, at + 1)
        return JsonNode(plain, place, key_place, members, (), tuple(repeated)), at + 1

    def _list(self, start: int, depth: int, key_place: Place | None) -> tuple[JsonNode, int]:
        items: list[JsonNode] = []
        at = self.skip(start + 1)
        while not self.text.startswith("]", at):
            item, at = self.read(at, depth + 1, None)
            items.append(item)
            at = self._comma(self.skip(at), "]")
        place = self.value.place_of(start, at + 1)
        return JsonNode([item.value for item in items], place, key_place, {}, tuple(items)), at + 1

    def _comma(self, at: int, closing: str) -> int:
        if self.text.startswith(closing, at):
            return at
        if not self.text.startswith(",", at):
            raise _Fault(f"a comma or {closing} was expected", at, at + 1)
        behind = self.skip(at + 1)
        if self.text.startswith(closing, behind):
            raise _Fault(f"a comma before {closing}", at, at + 1)
        return behind


def _why_no_value(word: str) -> str:
    if word.lower() in _WORDS or word == "None":
        return f"{word} is written {({'none': 'null'}).get(word.lower(), word.lower())} in JSON"
    if word.startswith("'"):
        return "JSON strings stand in double quotes"
    return f"{word[:40]} is no JSON value"
