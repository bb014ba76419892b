"""From a `ScheduledBatch` and the rows' own memory to the tensors of a forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from qanat.core.batch import ScheduledBatch
from qanat.core.errors import IntegrityError
from qanat.kernels.state_stores import StateStore
from qanat.layers.context import ForwardContext, HeldContext
from qanat.models.decoder import CausalLM
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.row_state import RowState, RowTable


class RowWork(msgspec.Struct, frozen=True):
    """What one row computes in this step.

    Attributes:
        row: batch row.
        state: its request.
        start, end: positions computed are start to end - 1.
        offset: place of position `start` among the step's tokens.
        drafts: guesses at the tokens of the last positions, which are to be verified.
        samples: all known tokens are computed then, so that the next one can be chosen.
        stores: (number of these positions, state id) where the state is kept on the way.
        max_drafts: so many may be made.
    """

    row: int
    state: RowState
    start: int
    end: int
    offset: int
    drafts: tuple[int, ...] = ()
    samples: bool = False
    stores: tuple[tuple[int, int], ...] = ()
    max_drafts: int = 0

    @property
    def num_known(self) -> int:
        """Of those, rows of tokens that are part of the request for certain."""
        return self.end - self.start - len(self.drafts)

    @property
    def num_prompt_logprobs(self) -> int:
        """Prompt positions whose log-probabilities this step can tell: those after a position computed now."""
        if self.state.sampling.prompt_logprobs is None:
            return 0
        return max(0, min(self.end, self.state.num_prompt_tokens - 1) - self.start)


def update_rows(table: RowTable, batch: ScheduledBatch) -> list[RowWork]:
    """Frees rows, lets requests in, appends blocks; returns the work in batch order.

    Whoever scheduled a row before the step in which its request ended was answered computes nothing for it.

    Raises:
        IntegrityError: the batch contradicts what the rows hold.
    """
    for row in batch.freed_rows:
        table.free(row)
    for new_row in batch.new_rows:
        table.enter(new_row)
    works, offset = [], 0
    for scheduled in batch.rows:
        if scheduled.new_block_ids:
            table.add_blocks(scheduled.row, scheduled.new_block_ids)
        state = table[scheduled.row]
        if state.has_ended:
            continue
        start = state.num_computed_tokens
        end = start + scheduled.num_scheduled_tokens
        samples = end == state.num_tokens and state.samples
        works.append(
            RowWork(
                row=scheduled.row,
                state=state,
                start=start,
                end=end,
                offset=offset,
                samples=samples,
                stores=tuple(scheduled.stores),
                max_drafts=scheduled.max_draft_tokens,
            )
        )
        offset += scheduled.num_scheduled_tokens
    return works


def with_drafts(works: Sequence[RowWork], drafts: Sequence[Sequence[int]]) -> list[RowWork]:
    """The same work with guesses to be verified behind each row's known tokens."""
    longer, offset = [], 0
    for work, own in zip(works, drafts, strict=True):
        if own:
            work.state.put_drafts(own)
        end = work.end + len(own)
        longer.append(msgspec.structs.replace(work, end=end, offset=offset, drafts=tuple(own)))
        offset += end - work.start
    return longer


def build_inputs(
    works: Sequence[RowWork], table: RowTable, cache: CacheTensors, model: CausalLM, block_size: int
) -> tuple[Tensor, ForwardContext]:
    """Token ids [T] int64 and the context of the step.

    Raises:
        IntegrityError: see `check_works`.
    """
    check_works(works, block_size)
    rows = np.array([work.row for work in works])
    starts = np.array([work.start for work in works])
    ends = np.array([work.end for work in works])
    lens = ends - starts
    row_starts = np.concatenate([[0], np.cumsum(lens)])
    # int32 ids as they are stored, int64 as torch indexes with them.
    ids = np.concatenate([work.state.tokens(work.start, work.end) for work in works]).astype(np.int64)
    positions = np.arange(len(ids)) - np.repeat(row_starts[:-1] - starts, lens)
    blocks = table.block_tables[np.repeat(rows, lens), positions // block_size]
    slots = blocks.astype(np.int64) * block_size + positions % block_size
    num_blocks = -(-int(ends.max()) // block_size)
    position_rows = torch.from_numpy(positions)[None]
    cos, sin = model.rotary_rows(position_rows)
    seq_lens = _int32(ends)
    context = ForwardContext(
        query_start_loc=_int32(row_starts),
        seq_lens=seq_lens,
        num_computed=_int32(starts),
        block_tables=torch.from_numpy(table.block_tables[rows, :num_blocks]),
        slot_mapping=torch.from_numpy(slots),
        state_ids=_int32(np.array([work.state.state_id for work in works])),
        positions=position_rows,
        cos=cos,
        sin=sin,
        kv_cache=cache.kv_blocks,
        conv_states=cache.conv_states,
        recurrent_states=cache.recurrent_states,
        block_size=block_size,
        host_query_lens=_int32(lens),
        host_seq_lens=seq_lens,
        held=_held(works, cache),
        stores=[StateStore(r, *store) for r, work in enumerate(works) for store in work.stores],
    )
    return torch.from_numpy(ids), context


def _held(works: Sequence[RowWork], cache: CacheTensors) -> HeldContext | None:
    """What layers with states are to absorb of the last step's rows, and whose rows they are to hold back."""
    if not cache.held_inputs:
        return None
    accepted = torch.tensor([[0, work.state.num_held] for work in works], dtype=torch.int32)
    are_held = torch.tensor([bool(work.drafts) for work in works], dtype=torch.int32)
    return HeldContext(cache.held_inputs, cache.held_gates, accepted, are_held)


def check_works(works: Sequence[RowWork], block_size: int) -> None:
    """Looks whether each row has something to compute, and the tokens and blocks for it.

    Raises:
        IntegrityError: it has not.
    """
    for work in works:
        num_tokens = work.state.num_tokens + work.state.num_drafts
        if work.start < work.end <= min(num_tokens, work.state.num_blocks * block_size):
            continue
        if work.end <= work.start:
            raise IntegrityError(f"request {work.state.request_id} was scheduled with no token to compute")
        work.state.tokens(work.start, work.end)
        raise IntegrityError(
            f"request {work.state.request_id} computes up to token {work.end} but owns "
            f"{work.state.num_blocks} blocks of {block_size}"
        )


def _int32(values: npt.NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(values.astype(np.int32))
