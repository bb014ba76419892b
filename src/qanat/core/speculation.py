"""What became of drafts: counters that are sent with every step's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import msgspec


class SpeculationCounts(msgspec.Struct, frozen=True):
    """Counters since the start.

    Attributes:
        num_drafts: times that drafts of a request were verified.
        num_draft_tokens: drafts verified.
        num_accepted_tokens: of those, how many became output.
        accepted_per_position: the same by the draft's place, first draft first.
        rows_per_length: decoding rows by the number of drafts that was allowed for them, 0 first.
        draft_s: seconds that making drafts took.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: Sequence[int] = ()
    rows_per_length: Sequence[int] = ()
    draft_s: float = 0.0


class SpeculationCounter:
    """Counts what steps report.

    Args:
        max_draft_tokens: most drafts of a row in a step.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        self._num_drafts = self._num_draft_tokens = 0
        self._accepted = [0] * max_draft_tokens
        self._lengths = [0] * (max_draft_tokens + 1)
        self._draft_s = 0.0

    def add_row(self, num_allowed: int, num_drafted: int, num_accepted: int) -> None:
        """A decoding row's drafts: how many were allowed, verified, and became output."""
        self._lengths[num_allowed] += 1
        if num_drafted:
            self._num_drafts += 1
            self._num_draft_tokens += num_drafted
            for position in range(num_accepted):
                self._accepted[position] += 1

    def add_plain_rows(self, num_rows: int) -> None:
        """Decoding rows for which no drafts were allowed."""
        self._lengths[0] += num_rows

    def add_step(self, draft_s: float) -> None:
        """Seconds that making a step's drafts took."""
        self._draft_s += draft_s

    def counts(self) -> SpeculationCounts:
        """What was counted so far; a copy."""
        return SpeculationCounts(
            self._num_drafts,
            self._num_draft_tokens,
            sum(self._accepted),
            tuple(self._accepted),
            tuple(self._lengths),
            self._draft_s,
        )


def total_speculation_counts(every: Sequence[SpeculationCounts]) -> SpeculationCounts:
    """Those of several engines together."""
    return SpeculationCounts(
        sum(one.num_drafts for one in every),
        sum(one.num_draft_tokens for one in every),
        sum(one.num_accepted_tokens for one in every),
        _added([one.accepted_per_position for one in every]),
        _added([one.rows_per_length for one in every]),
        sum(one.draft_s for one in every),
    )


def _added(every: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip_longest(*every, fillvalue=0))
