"""Drafts from the request's own text: what followed the last time that its newest tokens stood there.

Prompt lookup (Saxena 2023) without a model: it helps where output repeats its input, as edits, quotations and code do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from qanat.core.batch import ScheduledBatch
from qanat.worker.batch_inputs import RowWork


class NgramDrafter:
    """Looks for the ending of each row's tokens among its tokens.

    Args:
        shortest, longest: tokens of the ending.
    """

    def __init__(self, shortest: int, longest: int) -> None:
        self._shortest, self._longest = shortest, longest
        self.capture_s = 0.0
        self.ring = None

    def begin(self, batch: ScheduledBatch) -> None:
        """See `Drafter`."""

    def pause(self) -> None:
        """Nothing is kept."""

    def propose(self, works: Sequence[RowWork], max_drafts: Sequence[int]) -> list[list[int]]:
        """See `Drafter`."""
        return [
            find_drafts(work.state.tokens(0, work.state.num_tokens), self._shortest, self._longest, most)
            if most
            else []
            for work, most in zip(works, max_drafts, strict=True)
        ]

    def observe(self, works: Sequence[RowWork], hidden: Tensor, taps: Sequence[Tensor]) -> None:
        """Nothing: the tokens say it all."""


def find_drafts(tokens: npt.NDArray[np.int32], shortest: int, longest: int, most: int) -> list[int]:
    """What followed the latest earlier occurrence of the longest ending that occurs.

    Where that reaches the end of the tokens, it goes on with itself, as a text that repeats does.

    Args:
        tokens: [n] of one request.
        shortest: tokens of the shortest ending that counts.
        longest: tokens of the longest that is looked for.
        most: drafts wanted.
    """
    num_tokens = len(tokens)
    if num_tokens <= shortest:
        return []
    ends = np.flatnonzero(tokens[:-1] == tokens[-1])
    length = 1
    while length < longest and len(ends):
        longer = ends[ends >= length]
        longer = longer[tokens[longer - length] == tokens[num_tokens - 1 - length]]
        if not len(longer):
            break
        ends, length = longer, length + 1
    if length < shortest or not len(ends):
        return []
    start = int(ends[-1]) + 1
    period = num_tokens - start
    return [int(tokens[start + i % period]) for i in range(most)]
