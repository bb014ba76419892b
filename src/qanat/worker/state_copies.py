"""Copies of recurrent and conv states: a checkpoint of a running state, or a running state from a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from qanat.core.batch import StateCopy
from qanat.layers.context import ForwardContext, HeldContext
from qanat.models.decoder import CausalLM
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.row_state import RowTable


def copy_states(cache: CacheTensors, copies: Sequence[StateCopy]) -> None:
    """Makes copies in all layers, one after the other: a later one may read what an earlier one has written."""
    if not copies:
        return
    tensors = [*cache.conv_states, *cache.recurrent_states]
    for copy in copies:
        for tensor in tensors:
            tensor[copy.target].copy_(tensor[copy.source])


@torch.inference_mode()
def absorb_before_copies(
    model: CausalLM, table: RowTable, cache: CacheTensors, copies: Sequence[StateCopy]
) -> None:
    """Brings states that are about to be copied to where their requests are: rows held by the last step are absorbed.

    To be called before any row is freed.
    """
    sources = {copy.source for copy in copies}
    rows = [row for row in table.rows() if row.num_held and row.state_id in sources]
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
