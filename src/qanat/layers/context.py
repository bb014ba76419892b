"""What a forward pass needs besides its input: where each token stands and where caches and states lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from qanat.kernels.held_rows import HeldRows
from qanat.kernels.lens import Lens
from qanat.kernels.state_stores import StateStore


@dataclass
class HeldContext:
    """Where linear-attention layers keep rows that must be verified first; see `qanat.kernels.held_rows`.

    Attributes:
        inputs, gates: one of each per linear-attention layer.
        accepted: [R, 2] int32.
        are_held: [R] int32.
    """

    inputs: Sequence[Tensor]
    gates: Sequence[Tensor]
    accepted: Tensor
    are_held: Tensor

    def of_layer(self, index: int) -> HeldRows:
        """What one layer's op takes."""
        return HeldRows(self.inputs[index], self.gates[index], self.accepted, self.are_held)


@dataclass
class ForwardContext:
    """One step's ragged batch. Letters: T token rows, R requests, A position axes, S states, N blocks.

    Rows of request r are `query_start_loc[r]` to `query_start_loc[r + 1]`, in order of position. Rows from
    `query_start_loc[R]` on are padding: they read and write no cache and no state. A request with no rows in
    this step is left exactly as it was.

    Attributes:
        query_start_loc: [R + 1] int32, first row of each request, and the end.
        seq_lens: [R] int32, tokens of each request including this step's.
        num_computed: [R] int32, tokens before this step. 0 means that linear-attention layers start from zero
            state, whatever the slot holds.
        block_tables: [R, max_blocks] int32, KV blocks of each request in order; what lies past the end is not
            read.
        slot_mapping: [T] int64, place of each row's K and V: block_id * block_size + offset. Not read for
            padding rows.
        state_ids: [R] int32, place of each request's running state. Not read without linear-attention layers.
        positions: [A, T] int64, A = 1 for text, 3 (time, height, width) for M-RoPE.
        cos, sin: [T, rotary_dim / 2], made once per step by `CausalLM.rotary_rows(positions)`.
        kv_cache: one [2, N, block_size, KV heads, head_dim] per full-attention layer; index 0 is K, 1 is V.
        conv_states: one [S, conv_kernel - 1, conv_dim] per linear-attention layer: raw inputs, oldest first.
        recurrent_states: one [S, value heads, key_head_dim, value_head_dim] fp32 per linear-attention layer.
        block_size: tokens of a block.
        host_query_lens: [R] rows of each request, in the host's memory.
        host_seq_lens: `seq_lens` in the host's memory.
        held: rows held by linear-attention layers; None where every row is absorbed at once.
        stores: recurrent states that are left at other places too while the step passes them.
    """

    query_start_loc: Tensor
    seq_lens: Tensor
    num_computed: Tensor
    block_tables: Tensor
    slot_mapping: Tensor
    state_ids: Tensor
    positions: Tensor
    cos: Tensor
    sin: Tensor
    kv_cache: Sequence[Tensor]
    conv_states: Sequence[Tensor]
    recurrent_states: Sequence[Tensor]
    block_size: int
    host_query_lens: Lens
    host_seq_lens: Lens
    held: HeldContext | None = None
    stores: Sequence[StateStore] = ()
