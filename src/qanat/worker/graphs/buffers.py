"""The inputs of a graph: arrays that stay where they are and are filled anew before each replay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from qanat.kernels.draws import DRAW, Draws, as_bytes
from qanat.kernels.native.module import native
from qanat.layers.context import ForwardContext, HeldContext
from qanat.worker.batch_inputs import RowWork
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.row_state import RowTable
from qanat.worker.workspace import RING_SIZE


class StepBuffers:
    """Room for the inputs of steps of up to so many tokens, each request having one at least.

    What stands behind a step's tokens and requests is padding: requests without rows, token 0 at position 0.

    Args:
        max_tokens: of a step.
        table: the worker's rows.
        cache: its cache tensors.
        block_size: tokens in a block.
        has_ring: whether hidden rows are kept.
    """

    def __init__(
        self,
        max_tokens: int,
        table: RowTable,
        cache: CacheTensors,
        block_size: int,
        has_ring: bool = False,
    ) -> None:
        self._table, self._cache, self._block_size = table, cache, block_size
        self._token_ids = np.zeros(max_tokens, dtype=np.int64)
        self._positions = np.zeros(max_tokens, dtype=np.int64)
        self._slots = np.zeros(max_tokens, dtype=np.int64)
        self._query_lens = np.zeros(max_tokens, dtype=np.int32)
        self._query_starts = np.zeros(max_tokens + 1, dtype=np.int32)
        self._seq_lens = np.zeros(max_tokens, dtype=np.int32)
        self._num_computed = np.zeros(max_tokens, dtype=np.int32)
        self._state_ids = np.zeros(max_tokens, dtype=np.int32)
        self._places = np.full(max_tokens, -1, dtype=np.int64)
        self._draws: Draws = np.zeros(max_tokens, dtype=DRAW)
        self._block_tables = np.zeros((max_tokens, table.block_tables.shape[1]), dtype=np.int32)
        self._accepted = np.zeros((max_tokens, 2), dtype=np.int32)
        self._are_held = np.zeros(max_tokens, dtype=np.int32)
        self._is_any_held = False
        arrays = (
            self._token_ids,
            self._positions,
            self._slots,
            self._query_lens,
            self._seq_lens,
            self._num_computed,
            self._state_ids,
            self._query_starts,
            self._block_tables,
            self._draws,
            self._places,
        )
        self._inputs = native().StepInputs(
            arrays=[array.ctypes.data for array in arrays],
            max_tokens=max_tokens,
            table_width=table.block_tables.shape[1],
            block_size=block_size,
            ring_size=RING_SIZE if has_ring else 0,
        )

    def places(self, num_tokens: int) -> Tensor:
        """[T] int64, where hidden rows are kept; -1 for padding."""
        return torch.from_numpy(self._places[:num_tokens])

    def token_ids(self, num_tokens: int) -> Tensor:
        """[T] int64."""
        return torch.from_numpy(self._token_ids[:num_tokens])

    def positions(self, num_tokens: int) -> Tensor:
        """[1, T] int64."""
        return torch.from_numpy(self._positions[None, :num_tokens])

    def draws(self, num_tokens: int) -> Tensor:
        """[T, 32] uint8, how the token that follows each is chosen."""
        return torch.from_numpy(as_bytes(self._draws[:num_tokens]))

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
            held=self._held(num_requests),
        )

    def _held(self, num_requests: int) -> HeldContext | None:
        cache = self._cache
        if not cache.held_inputs:
            return None
        accepted = torch.from_numpy(self._accepted[:num_requests])
        return HeldContext(
            cache.held_inputs, cache.held_gates, accepted, torch.from_numpy(self._are_held[:num_requests])
        )

    def clear(self) -> None:
        """Makes everything padding: a pass over the buffers then touches nobody's cache or state."""
        self._inputs.fill([])
        self._accepted.fill(0)
        self._are_held.fill(0)
        self._is_any_held = False

    def fill(self, works: Sequence[RowWork]) -> None:
        """Writes a step's inputs; `check_works` comes before."""
        tables = self._table.table_addresses
        self._inputs.fill(
            [
                (
                    work.state.tokens_address,
                    tables[work.row],
                    work.state.draw_address,
                    work.start,
                    work.end,
                    work.state.num_blocks,
                    work.state.state_id,
                    work.row,
                )
                for work in works
            ]
        )
        if self._cache.held_inputs:
            is_any_held = any(work.drafts or work.state.num_held for work in works)
            if not is_any_held and not self._is_any_held:
                return  # all are zero
            self._is_any_held = is_any_held
            num_requests = len(works)
            self._accepted[:num_requests, 1] = [work.state.num_held for work in works]
            self._accepted[num_requests:] = 0
            self._are_held[:num_requests] = [bool(work.drafts) for work in works]
            self._are_held[num_requests:] = 0
