"""The inputs of a graph: arrays that stay where they are and are filled anew before each replay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from qanat.layers.context import ForwardContext
from qanat.worker.batch_inputs import RowWork
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.row_state import RowState, RowTable


class StepBuffers:
    """Room for the inputs of steps of up to so many tokens, each request having one at least.

    What stands behind a step's tokens and requests is padding: requests without rows, token 0 at position 0.

    Args:
        max_tokens: of a step.
        table: the worker's rows.
        cache: its cache tensors.
        block_size: tokens in a block.
    """

    def __init__(self, max_tokens: int, table: RowTable, cache: CacheTensors, block_size: int) -> None:
        self._table, self._cache, self._block_size = table, cache, block_size
        self._token_ids = np.zeros(max_tokens, dtype=np.int64)
        self._positions = np.zeros(max_tokens, dtype=np.int64)
        self._slots = np.zeros(max_tokens, dtype=np.int64)
        self._query_lens = np.zeros(max_tokens, dtype=np.int32)
        self._query_starts = np.zeros(max_tokens + 1, dtype=np.int32)
        self._seq_lens = np.zeros(max_tokens, dtype=np.int32)
        self._num_computed = np.zeros(max_tokens, dtype=np.int32)
        self._state_ids = np.zeros(max_tokens, dtype=np.int32)
        self._block_tables = np.zeros((max_tokens, table.block_tables.shape[1]), dtype=np.int32)
        # Whose blocks each row of the tables holds, and how many: a running request's only get more.
        self._owners: list[tuple[RowState | None, int]] = [(None, 0)] * max_tokens
        self._num_tokens = self._num_requests = 0

    def token_ids(self, num_tokens: int) -> Tensor:
        """[T] int64."""
        return torch.from_numpy(self._token_ids[:num_tokens])

    def positions(self, num_tokens: int) -> Tensor:
        """[1, T] int64."""
        return torch.from_numpy(self._positions[None, :num_tokens])

    def context(self, num_tokens: int, num_requests: int, cos: Tensor, sin: Tensor) -> ForwardContext:
        """A context of views of the buffers for steps padded to these numbers."""
        query_lens = torch.from_numpy(self._query_lens[:num_requests])
        seq_lens = torch.from_numpy(self._seq_lens[:num_requests])
        return ForwardContext(
            query_start_loc=torch.from_numpy(self._query_starts[: num_requests + 1]),
            seq_lens=seq_lens,
            num_computed=torch.from_numpy(self._num_computed[:num_requests]),
            block_tables=torch.from_numpy(self._block_tables[:num_requests]),
            slot_mapping=torch.from_numpy(self._slots[:num_tokens]),
            state_ids=torch.from_numpy(self._state_ids[:num_requests]),
            positions=self.positions(num_tokens),
            cos=cos,
            sin=sin,
            kv_cache=self._cache.kv_blocks,
            conv_states=self._cache.conv_states,
            recurrent_states=self._cache.recurrent_states,
            block_size=self._block_size,
            host_query_lens=query_lens,
            host_seq_lens=seq_lens,
        )

    def clear(self) -> None:
        """Makes everything padding: a pass over the buffers then touches nobody's cache or state."""
        self._pad(0, 0)

    def fill(self, works: Sequence[RowWork]) -> None:
        """Writes a step's inputs."""
        block_tables, block_size = self._table.block_tables, self._block_size
        row = 0
        for request, work in enumerate(works):
            start, end, state = work.start, work.end, work.state
            if end - start == 1:
                self._token_ids[row] = state.token(start)
                self._positions[row] = start
                block = int(block_tables[work.row, start // block_size])
                self._slots[row] = block * block_size + start % block_size
            else:
                own, positions = slice(row, row + end - start), np.arange(start, end)
                self._token_ids[own] = state.tokens(start, end)
                self._positions[own] = positions
                blocks = block_tables[work.row, positions // block_size].astype(np.int64)
                self._slots[own] = blocks * block_size + positions % block_size
            self._query_lens[request] = end - start
            self._seq_lens[request] = end
            self._num_computed[request] = start
            self._state_ids[request] = state.state_id
            owner, num_held = self._owners[request]
            if owner is not state or num_held != state.num_blocks:
                self._block_tables[request, : state.num_blocks] = block_tables[work.row, : state.num_blocks]
                self._owners[request] = state, state.num_blocks
            row += end - start
            self._query_starts[request + 1] = row
        self._pad(row, len(works))

    def _pad(self, num_tokens: int, num_requests: int) -> None:
        """Clears what the step before has left behind these many tokens and requests."""
        if num_tokens < self._num_tokens:
            stale = slice(num_tokens, self._num_tokens)
            self._token_ids[stale] = self._positions[stale] = self._slots[stale] = 0
        if num_requests < self._num_requests:
            stale = slice(num_requests, self._num_requests)
            self._query_lens[stale] = self._seq_lens[stale] = self._num_computed[stale] = 0
            self._state_ids[stale] = 0
            self._owners[stale] = [(None, 0)] * (self._num_requests - num_requests)
        self._query_starts[num_requests + 1 :] = num_tokens
        self._num_tokens, self._num_requests = num_tokens, num_requests
