"""Where calls begin and end: the tags, as the tokenizer's own tokens, or in the text where it has none for them.

Models leave the opening tag out at times; the first line of a call is then its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from qanat.core.events import PositionLogprobs
from qanat.engine.tokenizer import Tokenizer


class Tag(Enum):
    """A tag, by its spelling; BARE is the first line of a call whose opening tag is missing."""

    OPEN = "<tool_call>"
    CLOSE = "</tool_call>"
    BARE = "<function="


_PAIR = (Tag.OPEN, Tag.CLOSE)
_MARK = "<"
"""Begins whatever is looked for, and stands nowhere else in it."""
_INDENT = " \t"


@dataclass(frozen=True)
class Unit:
    """A piece of output that is handled at once: a token, or where tags are text, a part of one or a whole tag.

    Attributes:
        token_id: the token, -1 for a part of one.
        text: what became certain with it.
        raw: its token's bytes; a token in several parts has them at the first.
        position: its log-probabilities; a token in several parts has them at the first.
        number: tokens generated up to here.
        tag: which tag it is.
        parts: the units that a tag in the text was found in.
        is_counted: False for what does not stand for a token: an unfinished character, a token's other parts.
    """

    token_id: int
    text: str
    raw: bytes
    position: PositionLogprobs | None
    number: int
    tag: Tag | None = None
    parts: tuple[Unit, ...] = ()
    is_counted: bool = True

    def as_text(self) -> list[Unit]:
        """The same as plain text, where a tag turned out to be none."""
        return list(self.parts) or [replace(self, tag=None)]

    @property
    def positions(self) -> list[PositionLogprobs]:
        """Log-probabilities of all tokens that it stands for."""
        return [unit.position for unit in self.as_text() if unit.position is not None]


class TagReader:
    """Finds tags in the units of one choice.

    Args:
        tokenizer: if it has both tags as single tokens, only those count; else their spelling does.
        openings: first lines of calls, which count as `Tag.BARE` where nothing stands before them on their line.
    """

    def __init__(self, tokenizer: Tokenizer, openings: Sequence[str] = ()) -> None:
        ids = {tag: tokenizer.token_id(tag.value) for tag in _PAIR}
        is_by_id = None not in ids.values()
        self._by_id = {token_id: tag for tag, token_id in ids.items() if is_by_id}
        self._spelled = {} if is_by_id else {tag.value: tag for tag in _PAIR}
        self._openings = dict.fromkeys(openings, Tag.BARE)
        self._held: list[Unit] = []
        self._is_line_empty = True

    def push(self, unit: Unit) -> list[Unit]:
        """Takes a token; returns what is certain, in order."""
        tag = self._by_id.get(unit.token_id)
        if tag is not None:
            self._is_line_empty = True
            return [*self.finish(), *_split_stray(unit, tag)]
        if not self._spelled and not self._openings:
            return [unit]
        self._held.append(unit)
        units: list[Unit] = []
        while (found := self._find()) is not None:
            start, spelling, tag = found
            units += self._take(start)
            parts = self._take(len(spelling))
            units.append(Unit(-1, spelling, b"", None, parts[-1].number, tag, tuple(parts)))
            self._is_line_empty = tag is not Tag.BARE
        num_chars = sum(len(held.text) for held in self._held)
        return units + self._take(num_chars - self._num_possible())

    def finish(self) -> list[Unit]:
        """What was held back, at the end of the output."""
        units, self._held = self._held, []
        return units

    def _find(self) -> tuple[int, str, Tag] | None:
        """The first tag in what is held: where, its spelling, and which."""
        text = self._text()
        if _MARK not in text:
            return None
        for start in (match.start() for match in re.finditer(_MARK, text)):
            for spelling, tag in self._possible_at(text, start):
                if text.startswith(spelling, start):
                    return start, spelling, tag
        return None

    def _num_possible(self) -> int:
        """Length of the end of the text that begins a tag."""
        text = self._text()
        start = text.rfind(_MARK)
        if start < 0:
            return 0
        tail = text[start:]
        is_possible = any(spelling.startswith(tail) for spelling, _ in self._possible_at(text, start))
        return len(tail) if is_possible else 0

    def _possible_at(self, text: str, start: int) -> Iterable[tuple[str, Tag]]:
        line = text[:start].rpartition("\n")
        is_alone = not line[2].strip(_INDENT) and (bool(line[1]) or self._is_line_empty)
        return [*self._spelled.items(), *(self._openings.items() if is_alone else ())]

    def _text(self) -> str:
        return "".join(unit.text for unit in self._held)

    def _take(self, num_chars: int) -> list[Unit]:
        """Removes units with so many characters from the front; with the last of them those without any."""
        units: list[Unit] = []
        while self._held and (num_chars > 0 or not self._held[0].text):
            unit = self._held.pop(0)
            if len(unit.text) > num_chars:
                unit, tail = _cut(unit, num_chars)
                self._held.insert(0, tail)
            num_chars -= len(unit.text)
            self._note(unit.text)
            units.append(unit)
        return units

    def _note(self, text: str) -> None:
        _, newline, line = text.rpartition("\n")
        self._is_line_empty = (bool(newline) or self._is_line_empty) and not line.strip(_INDENT)


def _split_stray(unit: Unit, tag: Tag | None) -> list[Unit]:
    """A tag's unit, and before it what an unfinished character left."""
    if tag is None:
        return [unit]
    marked = replace(unit, text=tag.value, tag=tag)
    stray = unit.text.removesuffix(tag.value)
    return [Unit(-1, stray, b"", None, unit.number, is_counted=False), marked] if stray else [marked]


def _cut(unit: Unit, num_chars: int) -> tuple[Unit, Unit]:
    """Both parts of a unit. What is known of its token, its bytes among that, stays with the first."""
    first = replace(unit, token_id=-1, text=unit.text[:num_chars])
    return first, Unit(-1, unit.text[num_chars:], b"", None, unit.number, is_counted=False)
