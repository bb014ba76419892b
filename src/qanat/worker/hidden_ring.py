"""The newest hidden rows of each batch row, kept where steps leave them, for whoever drafts from them later."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from qanat.config.speculative import MAX_DRAFT_TOKENS
from qanat.kernels import ops
from qanat.worker.batch_inputs import RowWork
from qanat.worker.workspace import RING_SIZE

WINDOW = RING_SIZE - 1 - MAX_DRAFT_TOKENS
"""So many of a batch row's newest rows are there for certain: rows of rejected drafts have taken places too."""


class HiddenRing:
    """Rows by batch row and position: the place of a position is its remainder by `RING_SIZE`.

    Args:
        num_rows: batch rows.
        width: of a hidden row.
        dtype: of its values.
        make_rows: what is kept of a step's hidden rows and tapped rows, see `DraftModel.draft_inputs`.

    Attributes:
        rows: [num_rows * RING_SIZE, width].
    """

    def __init__(
        self,
        num_rows: int,
        width: int,
        dtype: torch.dtype,
        make_rows: Callable[[Tensor, Sequence[Tensor]], Tensor],
    ) -> None:
        self.rows = torch.zeros((num_rows * RING_SIZE, width), dtype=dtype)
        self._make_rows = make_rows

    def row(self, batch_row: int, position: int) -> Tensor:
        """The row [width] of a position, if it is among the newest ones; a view."""
        return self.rows[batch_row * RING_SIZE + position % RING_SIZE]

    def keep(self, hidden: Tensor, taps: Sequence[Tensor], places: Tensor) -> None:
        """Keeps rows at their places [T] int64, those with -1 nowhere; a part of a graph."""
        ops.store_rows(self._make_rows(hidden, taps), places, self.rows)

    def store(self, works: Sequence[RowWork], hidden: Tensor, taps: Sequence[Tensor]) -> None:
        """Keeps the newest rows of a step.

        Args:
            works: of the step.
            hidden: [T, C] their rows behind the final norm.
            taps: [T, C] each, see `Drafter.observe`.
        """
        places = np.full(len(hidden), -1, dtype=np.int64)
        for work in works:
            start = max(work.start, work.end - RING_SIZE)
            first = work.offset + start - work.start
            positions = np.arange(start, work.end)
            places[first : first + len(positions)] = work.row * RING_SIZE + positions % RING_SIZE
        self.keep(hidden, taps, torch.from_numpy(places))
