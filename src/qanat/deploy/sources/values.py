"""Text that remembers where in a file each of its characters was written."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

PLACEHOLDER = re.compile(
    r"<[^<>\s][^<>]*>|\{\{[^{}]*\}\}|\|\w+\||\b[xX]{3,}\b|\b\d+\.xx\.xx\.\d+\b|\byour[_-]\w+", re.ASCII
)
"""What guides write where the reader is to put a value of his own."""


@dataclass(frozen=True, order=True)
class Place:
    """A stretch of a file.

    Attributes:
        path: as the file was named.
        line: of its first character, from 1.
        column: of its first character, from 1, in characters.
        end_line: of the character behind it.
        end_column: of the character behind it.
        start: offset of its first character in the file's text.
        end: offset behind its last character.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    start: int = 0
    end: int = 0


class Source:
    """A file's text with its lines.

    Args:
        path: name for places.
        text: the whole content.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, start: int, end: int) -> Place:
        """The place of the characters from `start` up to `end`."""
        line, column = self._position(start)
        end_line, end_column = self._position(max(start, end))
        return Place(self.path, line, column, end_line, end_column, start, max(start, end))

    def line_start(self, line: int) -> int:
        """Offset of a line's first character; lines count from 1."""
        return self._starts[min(max(line, 1), len(self._starts)) - 1]

    @property
    def num_lines(self) -> int:
        """Lines of the file; the text behind the last line break is one."""
        return len(self._starts)

    def _position(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


@dataclass(frozen=True)
class Span:
    """Characters of a value and where they were written.

    Attributes:
        start: offset in the value's text.
        length: characters of the value.
        source_start: offset in the file.
        source_end: offset behind, in the file; with as many characters as `length` they match one to one.
        source: the file they stand in; None for that of the value.
    """

    start: int
    length: int
    source_start: int
    source_end: int
    source: Source | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Value:
    """Text as a program would receive it.

    Attributes:
        text: without quotes and escapes, variables filled in where they are known.
        place: where it was written, quotes included.
        unknown: names of variables, or commands, whose outcome nobody can know; they stand in `text` as written.
        spans: where its characters come from, in order; those of a variable come from its assignment.
        source: the file.
    """

    text: str
    place: Place
    unknown: tuple[str, ...] = ()
    spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)
    source: Source | None = field(default=None, compare=False, repr=False)

    @property
    def is_known(self) -> bool:
        """True if `text` is all there is: no unknown variable, no placeholder for the reader's own value."""
        return not self.unknown and not PLACEHOLDER.search(self.text)

    def place_of(self, start: int, end: int) -> Place:
        """Where the characters `start` up to `end` of the text were written."""
        if self.source is None:
            return self.place
        source, first, _ = self._written(start, self.source)
        other, _, last = self._written(max(start, end - 1), self.source)
        return source.place(first, last) if source is other and first <= last else self.place

    def _written(self, offset: int, own: Source) -> tuple[Source, int, int]:
        """The file of one character, and its offsets from and behind it there."""
        for span in self.spans:
            if span.start <= offset < span.start + span.length:
                if span.source_end - span.source_start == span.length:
                    at = span.source_start + offset - span.start
                    return span.source or own, at, at + 1
                return span.source or own, span.source_start, span.source_end
        return own, self.place.start, self.place.end

    def spans_in(self, source: Source) -> tuple[Span, ...]:
        """Its spans for a value of another file: each knows the file it comes from."""
        if self.source is source or self.source is None:
            return self.spans
        return tuple(span if span.source else replace(span, source=self.source) for span in self.spans)

    def part(self, start: int, end: int) -> Value:
        """The characters `start` up to `end` as a value of their own."""
        spans = []
        for span in self.spans:
            low, high = max(start, span.start), min(end, span.start + span.length)
            if low >= high:
                continue
            written = (span.source_start, span.source_end)
            if span.source_end - span.source_start == span.length:
                written = (span.source_start + low - span.start, span.source_start + high - span.start)
            spans.append(Span(low - start, high - low, *written, span.source))
        text = self.text[start:end]
        unknown = tuple(name for name in self.unknown if name in text)
        return Value(text, self.place_of(start, end), unknown, tuple(spans), self.source)


def join(parts: Sequence[Value], place: Place, source: Source) -> Value:
    """Values written without a gap between them, as one."""
    text = ""
    spans: list[Span] = []
    unknown: list[str] = []
    for part in parts:
        own = part.spans_in(source)
        if text:
            own = tuple(
                Span(len(text) + span.start, span.length, span.source_start, span.source_end, span.source)
                for span in own
            )
        spans += own
        text += part.text
        unknown += [name for name in part.unknown if name not in unknown]
    return Value(text, place, tuple(unknown), tuple(spans), source)


def value_at(source: Source, start: int, end: int) -> Value:
    """The characters of a file as they stand."""
    text = source.text[start:end]
    return Value(text, source.place(start, end), (), (Span(0, len(text), start, end),), source)
