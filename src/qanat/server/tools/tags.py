"""Where calls begin and end: the tags, as the tokenizer's own tokens, or in the text where it has none for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from qanat.core.events import PositionLogprobs
from qanat.engine.tokenizer import Tokenizer


class Tag(Enum):
    """A tag, by its spelling."""

    OPEN = "<tool_call>"
    CLOSE = "</tool_call>"


@dataclass(frozen=True)
class Unit:
    """A piece of output that is handled at once: a token, or where tags are text, a part of one or a whole tag.

    Attributes:
        token_id: the token, -1 for a part of one.
        text: what became certain with it.
        raw: its bytes.
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
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = {tag: tokenizer.token_id(tag.value) for tag in Tag}
        self._by_id = {token_id: tag for tag, token_id in ids.items() if token_id is not None}
        self._is_by_id = len(self._by_id) == len(Tag)
        self._held: list[Unit] = []

    def push(self, unit: Unit) -> list[Unit]:
        """Takes a token; returns what is certain, in order."""
        if self._is_by_id:
            return _split_stray(unit, self._by_id.get(unit.token_id))
        self._held.append(unit)
        units: list[Unit] = []
        while (found := _find(self._held)) is not None:
            start, tag = found
            units += self._take(start)
            parts = self._take(len(tag.value))
            units.append(Unit(-1, tag.value, b"", None, parts[-1].number, tag, tuple(parts)))
        num_chars = sum(len(held.text) for held in self._held)
        return units + self._take(num_chars - _num_possible(self._held))

    def finish(self) -> list[Unit]:
        """What was held back, at the end of the output."""
        units, self._held = self._held, []
        return units

    def _take(self, num_chars: int) -> list[Unit]:
        """Removes units with so many characters from the front; with the last of them those without any."""
        units: list[Unit] = []
        while self._held and (num_chars > 0 or not self._held[0].text):
            unit = self._held.pop(0)
            if len(unit.text) > num_chars:
                unit, tail = _cut(unit, num_chars)
                self._held.insert(0, tail)
            num_chars -= len(unit.text)
            units.append(unit)
        return units


def _split_stray(unit: Unit, tag: Tag | None) -> list[Unit]:
    """A tag's unit, and before it what an unfinished character left."""
    if tag is None:
        return [unit]
    marked = replace(unit, text=tag.value, tag=tag)
    stray = unit.text.removesuffix(tag.value)
    return [Unit(-1, stray, b"", None, unit.number, is_counted=False), marked] if stray else [marked]


def _find(units: Sequence[Unit]) -> tuple[int, Tag] | None:
    text = "".join(unit.text for unit in units)
    starts = [(start, tag) for tag in Tag if (start := text.find(tag.value)) >= 0]
    return min(starts, key=lambda found: found[0], default=None)


def _num_possible(units: Sequence[Unit]) -> int:
    """Length of the longest end of the text that begins a tag."""
    text = "".join(unit.text for unit in units)
    longest = max(len(tag.value) for tag in Tag) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(tag.value.startswith(text[-length:]) for tag in Tag):
            return length
    return 0


def _cut(unit: Unit, num_chars: int) -> tuple[Unit, Unit]:
    """Both parts of a unit; an unfinished character's bytes stay with the first."""
    tail = unit.text[num_chars:]
    num_bytes = max(0, len(unit.raw) - len(tail.encode()))
    first = replace(unit, token_id=-1, text=unit.text[:num_chars], raw=unit.raw[:num_bytes])
    return first, Unit(-1, tail, unit.raw[num_bytes:], None, unit.number, is_counted=False)
