"""Tokens to text one by one: never half a character, and nothing that may yet become a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from qanat.engine.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Text of a growing token sequence. The pieces joined equal the text of the whole, however they are cut."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_token_ids if skip_special_tokens else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """Text that became certain with this token; an unfinished character waits for the next one."""
        if token_id in self._skipped:
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def push_all(self, token_ids: Sequence[int]) -> str:
        """The same for several tokens at once."""
        if not self._skipped.isdisjoint(token_ids):
            token_ids = [token_id for token_id in token_ids if token_id not in self._skipped]
        return self._decoder.decode(b"".join(map(self._tokenizer.token_bytes, token_ids)))

    def finish(self) -> str:
        """What is left at the end: a replacement character for an unfinished one, else nothing."""
        return self._decoder.decode(b"", final=True)


@dataclass(frozen=True)
class StopMatch:
    """A stop string that completed.

    Attributes:
        stop: which.
        text: output text to release, cut before the match or after it if it is included.
    """

    stop: str
    text: str


class StopStringChecker:
    """Finds stop strings in streamed text and holds back what could still become one.

    The match that completes first wins, of several completing together the one that begins first; so the result
    does not depend on how the text was cut into pieces.
    """

    def __init__(self, stops: Sequence[str], *, is_included: bool) -> None:
        self._stops = tuple(stops)
        self._is_included = is_included
        self._longest = max((len(stop) for stop in self._stops), default=0)
        self._held = ""

    def push(self, text: str) -> str | StopMatch:
        """Takes new text; returns the text that may be released, or the match that ends the output."""
        if not self._stops:
            return text
        self._held += text
        matches = [
            (start + len(stop), start, stop) for stop in self._stops if (start := self._held.find(stop)) != -1
        ]
        if matches:
            end, start, stop = min(matches)
            return StopMatch(stop, self._held[: end if self._is_included else start])
        num_held = self._num_possible_prefix()
        released, self._held = (
            self._held[: len(self._held) - num_held],
            self._held[len(self._held) - num_held :],
        )
        return released

    def finish(self) -> str:
        """Releases what was held back: the output ended another way."""
        released, self._held = self._held, ""
        return released

    def _num_possible_prefix(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        for length in range(min(self._longest - 1, len(self._held)), 0, -1):
            tail = self._held[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
