"""What a draft layer goes on from, block by block, for whoever finds a block in the prefix cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from qanat.core.batch import ScheduledBatch
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.row_state import RowTable


class BlockEntries:
    """Counts of entries, kept in the cache beside them: so many of a block's last tokens have theirs.

    Entries are made when drafts are wanted, so a block may be found without any, or with those of a window that began
    within it; the slots before such a window are zeros. Where no state keeps it, the row that the first entry behind a
    block is made from lies beside the block; zeros as long as nobody has drafted there.

    Args:
        table: the worker's rows.
        cache: its cache tensors.
        block_size: tokens in a block.
    """

    def __init__(self, table: RowTable, cache: CacheTensors, block_size: int) -> None:
        self._table, self._block_size = table, block_size
        self._counts: npt.NDArray[np.int32] = cache.draft_counts[0].view(-1).numpy()
        self._rows = cache.block_rows[0][0] if cache.block_rows else None

    def begin(self, batch: ScheduledBatch) -> None:
        """Blocks that change hands with this step have no entries."""
        for new_row in batch.new_rows:
            num_found = new_row.num_computed_tokens // self._block_size
            self._forget(new_row.block_ids[num_found:])
        for row in batch.rows:
            if row.new_block_ids:
                self._forget(row.new_block_ids)

    def add(self, row: int, first: int, start: int, end: int) -> None:
        """Notes that a row's tokens at positions start to end - 1 have theirs, and those before from `first` on."""
        size = self._block_size
        for number in range(start // size, end // size):
            self._counts[self._table.block_tables[row, number]] = min(size, (number + 1) * size - first)

    def first_before(self, row: int, end: int) -> int:
        """The first position from which on all tokens before `end`, where a block ends, have entries."""
        size = self._block_size
        counts = self._counts[self._table.block_tables[row, : end // size]]
        # Position 0 has no entry, so there is always one.
        last = int(np.flatnonzero(counts < size)[-1])
        return (last + 1) * size - int(counts[last])

    @torch.inference_mode()
    def keep_rows(self, row: int, start: int, rows: Tensor) -> None:
        """Keeps those rows beside their blocks that are of a block's last token.

        Args:
            row: batch row.
            start: position of the first.
            rows: [n, D] of the positions from there on.
        """
        size = self._block_size
        first = -(start + 1) % size
        ends = rows[first::size]
        if self._rows is not None and len(ends):
            number = (start + first) // size
            blocks = self._table.block_tables[row, number : number + len(ends)].astype(np.int64)
            self._rows.index_copy_(0, torch.from_numpy(blocks), ends.to(self._rows.dtype))

    def row_behind(self, block_id: int) -> Tensor:
        """[D] of a block's last token, where blocks keep it; a view."""
        assert self._rows is not None, "a state keeps it"
        return self._rows[block_id]

    def _forget(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            self._counts[block_id] = 0
        if self._rows is not None:
            self._rows[list(block_ids)] = 0
