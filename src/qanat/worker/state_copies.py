"""Copies of recurrent and conv states: a checkpoint of a running state, or a running state from a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from qanat.core.batch import StateCopy
from qanat.layers.context import ForwardContext, HeldContext
from qanat.models.decoder import CausalLM
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.hidden_ring import HiddenRing
from qanat.worker.row_state import RowTable


def copy_states(cache: CacheTensors, copies: Sequence[StateCopy]) -> None:
    """Makes copies in all layers, one after the other: a later one may read what an earlier one has written."""
    if not copies:
        return
    for copy in copies:
        for tensor in cache.kept_states:
            tensor[copy.target].copy_(tensor[copy.source])


def keep_draft_rows(
    table: RowTable, cache: CacheTensors, ring: HiddenRing, copies: Sequence[StateCopy]
) -> None:
    """Puts the newest hidden row beside each running state that is about to be copied, to draft from behind the copy.

    To be called before any row is freed, once the states have absorbed what was accepted.
    """
    if not cache.draft_rows:
        return
    sources = {copy.source for copy in copies}
    for row, state in table.rows():
        if state.state_id in sources and state.num_computed_tokens:
            newest = ring.row(row, state.num_computed_tokens - 1)
            cache.draft_rows[0][state.state_id].copy_(newest)


@torch.inference_mode()
def absorb_before_copies(
    model: CausalLM, table: RowTable, cache: CacheTensors, copies: Sequence[StateCopy]
) -> None:
    """Brings states that are about to be copied to where their requests are: rows held by the last step are absorbed.

    To be called before any row is freed.
    """
    sources = {copy.source for copy in copies}
    rows = [state for _, state in table.rows() if state.num_held and state.state_id in sources]
    if not rows:
        return
    nothing = torch.zeros(len(rows) + 1, dtype=torch.int32)
    lens = nothing[:-1]
    num_computed = torch.tensor([row.num_computed_tokens for row in rows], dtype=torch.int32)
    accepted = torch.tensor([[0, row.num_held] for row in rows], dtype=torch.int32)
    model.absorb_held(
        ForwardContext(
            query_start_loc=nothing,
            seq_lens=num_computed,
            num_computed=num_computed,
            block_tables=nothing[None],
            slot_mapping=lens.long(),
            state_ids=torch.tensor([row.state_id for row in rows], dtype=torch.int32),
            positions=lens.long()[None],
            cos=lens,
            sin=lens,
            kv_cache=cache.kv_blocks,
            conv_states=cache.conv_states,
            recurrent_states=cache.recurrent_states,
            block_size=1,
            host_query_lens=lens,
            host_seq_lens=num_computed,
            held=HeldContext(cache.held_inputs, cache.held_gates, accepted, lens),
        )
    )
    for row in rows:
        row.num_held = 0
