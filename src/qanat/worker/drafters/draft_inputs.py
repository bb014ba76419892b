"""The inputs of a draft layer's passes: arrays that stay where they are, filled anew before each use."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import torch
from torch import Tensor

from qanat.kernels.draws import DRAW, Draws, as_bytes
from qanat.kernels.native.module import native
from qanat.layers.context import ForwardContext
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.row_state import RowState, RowTable
from qanat.worker.sampler import draws_of
from qanat.worker.workspace import RING_SIZE


class Segment(msgspec.Struct, frozen=True):
    """Entries of one request that a draft layer computes: those of the tokens at positions start to end - 1.

    Attributes:
        row: batch row.
        state: its request.
        start, end: positions of the tokens; an entry lies in its token's slot (rule R7).
        first: position of the first entry that may be read; earlier ones are not there.
        num_drafts: tokens to guess behind them.
    """

    row: int
    state: RowState
    start: int
    end: int
    first: int = 0
    num_drafts: int = 0


class DraftInputs:
    """Inputs of a first pass over segments, and of passes over one guessed token each behind it.

    Block tables and lengths count from the block of the first entry that may be read. Rotary positions are absolute, so
    that whoever finds a block can go on from its entries, wherever his own window begins (rule R7).

    Args:
        max_tokens: of a first pass.
        max_requests: segments.
        num_passes: passes behind the first.
        table: the worker's rows.
        cache: its cache tensors.
        block_size: tokens in a block.
    """

    def __init__(
        self,
        max_tokens: int,
        max_requests: int,
        num_passes: int,
        table: RowTable,
        cache: CacheTensors,
        block_size: int,
    ) -> None:
        self._table, self._cache, self._block_size = table, cache, block_size
        self._token_ids = np.zeros(max_tokens, dtype=np.int64)
        self._positions = np.zeros(max_tokens, dtype=np.int64)
        self._slots = np.zeros(max_tokens, dtype=np.int64)
        self._sources = np.zeros(max_tokens, dtype=np.int64)
        self._last_rows = np.zeros(max_requests, dtype=np.int64)
        self._later_positions = np.zeros((num_passes, max_requests), dtype=np.int64)
        self._later_slots = np.zeros((num_passes, max_requests), dtype=np.int64)
        self._query_lens = np.zeros((1 + num_passes, max_requests), dtype=np.int32)
        self._seq_lens = np.zeros((1 + num_passes, max_requests), dtype=np.int32)
        self._query_starts = np.zeros((1 + num_passes, max_requests + 1), dtype=np.int32)
        self._draws: Draws = np.zeros((1 + num_passes, max_requests), dtype=DRAW)
        self._block_tables = np.zeros((max_requests, table.block_tables.shape[1]), dtype=np.int32)

    def fill(self, segments: Sequence[Segment]) -> None:
        """Writes the inputs of these segments; what stands behind them becomes padding."""
        size = self._block_size
        for array in (
            self._token_ids,
            self._positions,
            self._slots,
            self._sources,
            self._later_positions,
            self._later_slots,
        ):
            array.fill(0)
        self._query_lens.fill(0)
        self._seq_lens.fill(0)
        num_passes = max((one.num_drafts for one in segments), default=0)
        # A row for each request in each pass: those that want no more write where nothing is read.
        self._query_lens[1 : max(1, num_passes), : len(segments)] = 1
        self._seq_lens[1 : max(1, num_passes), : len(segments)] = 1
        row = 0
        for request, one in enumerate(segments):
            skipped = one.first // size
            blocks = self._table.block_tables[one.row, skipped : one.state.num_blocks]
            self._block_tables[request, : len(blocks)] = blocks
            places = np.arange(one.start, one.end + max(0, one.num_drafts - 1)) - skipped * size
            slots = blocks[places // size].astype(np.int64) * size + places % size
            num_tokens = one.end - one.start
            own = slice(row, row + num_tokens)
            self._token_ids[own] = one.state.tokens(one.start, one.end)
            self._positions[own] = np.arange(one.start, one.end)
            self._slots[own] = slots[:num_tokens]
            self._sources[own] = one.row * RING_SIZE + np.arange(one.start - 1, one.end - 1) % RING_SIZE
            row += num_tokens
            self._last_rows[request] = row - 1
            self._query_lens[0, request] = num_tokens
            self._seq_lens[0, request] = places[num_tokens - 1] + 1
            for index in range(len(places) - num_tokens):
                self._later_positions[index, request] = one.end + index
                self._later_slots[index, request] = slots[num_tokens + index]
                self._seq_lens[1 + index, request] = places[num_tokens + index] + 1
        self._last_rows[len(segments) :] = 0
        for index in range(num_passes):
            drawn = [(one.state, one.end + index) for one in segments]
            self._draws[index, : len(segments)] = draws_of(drawn)
        np.cumsum(self._query_lens, axis=1, out=self._query_starts[:, 1:])

    def token_ids(self, num_tokens: int) -> Tensor:
        """[T] int64 tokens of the first pass."""
        return torch.from_numpy(self._token_ids[:num_tokens])

    def sources(self, num_tokens: int) -> Tensor:
        """[T] int64 places of the hidden rows before those tokens, in the ring."""
        return torch.from_numpy(self._sources[:num_tokens])

    def last_rows(self, num_requests: int) -> Tensor:
        """[R] int64 rows of the first pass behind which tokens are guessed."""
        return torch.from_numpy(self._last_rows[:num_requests])

    def draws(self, index: int, num_requests: int) -> Tensor:
        """[R, 32] bytes: how the token behind a pass is drawn, with the noise that its position has (rule R6).

        A draft drawn as the model draws is more often the model's token than the most likely one is.
        """
        return torch.from_numpy(as_bytes(self._draws[index, :num_requests]))

    def positions(self, index: int, num_rows: int) -> Tensor:
        """[1, T] int64 of a pass; 0 is the first."""
        positions = self._positions if index == 0 else self._later_positions[index - 1]
        return torch.from_numpy(positions[None, :num_rows])

    def context(
        self, index: int, num_rows: int, num_requests: int, rotary: tuple[Tensor, Tensor]
    ) -> ForwardContext:
        """The context of a pass of so many rows; 0 is the first."""
        slots = self._slots if index == 0 else self._later_slots[index - 1]
        query_lens = torch.from_numpy(self._query_lens[index, :num_requests])
        seq_lens = torch.from_numpy(self._seq_lens[index, :num_requests])
        return ForwardContext(
            query_start_loc=torch.from_numpy(self._query_starts[index, : num_requests + 1]),
            seq_lens=seq_lens,
            num_computed=seq_lens,  # read by recurrent layers only, and a draft layer is none
            block_tables=torch.from_numpy(self._block_tables[:num_requests]),
            slot_mapping=torch.from_numpy(slots[:num_rows]),
            state_ids=seq_lens,
            positions=self.positions(index, num_rows),
            cos=rotary[0],
            sin=rotary[1],
            kv_cache=self._cache.draft_kv,
            conv_states=(),
            recurrent_states=(),
            block_size=self._block_size,
            host_query_lens=query_lens,
            host_seq_lens=seq_lens,
        )


class GraphDraftInputs(DraftInputs):
    """The same, written by the compiled module, for passes that are replayed."""

    def __init__(
        self,
        max_tokens: int,
        max_requests: int,
        num_passes: int,
        table: RowTable,
        cache: CacheTensors,
        block_size: int,
    ) -> None:
        super().__init__(max_tokens, max_requests, num_passes, table, cache, block_size)
        arrays = (
            self._token_ids,
            self._positions,
            self._slots,
            self._sources,
            self._last_rows,
            self._later_positions,
            self._later_slots,
            self._query_lens,
            self._seq_lens,
            self._query_starts,
            self._block_tables,
            self._draws,
        )
        self._native = native().DraftInputs(
            arrays=[array.ctypes.data for array in arrays],
            max_tokens=max_tokens,
            max_requests=max_requests,
            num_later=num_passes,
            table_width=table.block_tables.shape[1],
            block_size=block_size,
            ring_size=RING_SIZE,
        )

    def fill(self, segments: Sequence[Segment]) -> None:
        """See `DraftInputs`."""
        tables = self._table.table_addresses
        self._native.fill(
            [
                (
                    one.state.tokens_address,
                    tables[one.row],
                    one.state.draw_address,
                    one.start,
                    one.end,
                    one.first,
                    one.state.num_blocks,
                    one.num_drafts,
                    one.row,
                )
                for one in segments
            ]
        )
