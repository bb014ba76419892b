"""Which entries of a draft layer's cache are there, block by block, for whoever finds a block in the prefix cache."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from qanat.core.batch import ScheduledBatch
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.row_state import RowTable


class BlockEntries:
    """Counts of entries, kept in the cache beside them: so many of a block's last tokens have theirs.

    Entries are made when drafts are wanted, so a block may be found without any, or with those of a window that began
    within it; the slots before such a window are zeros.

    Args:
        table: the worker's rows.
        cache: its cache tensors.
        block_size: tokens in a block.
    """

    def __init__(self, table: RowTable, cache: CacheTensors, block_size: int) -> None:
        self._table, self._block_size = table, block_size
        self._counts: npt.NDArray[np.int32] = cache.draft_counts[0].view(-1).numpy()

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

    def _forget(self, block_ids: Iterable[int]) -> None:
        for block_id in block_ids:
            self._counts[block_id] = 0
