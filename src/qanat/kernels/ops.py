"""The ops that layers call, with their contracts. Layers import this and `qanat.kernels.rows` of this package.

Shape letters: T rows, R requests, H query heads, D head dim, C channels, E experts, K experts per token, V
vocabulary, S states, N blocks. Everything is ragged: rows of all requests follow each other without padding;
`host_query_lens` [R] says how many each has, rows after the last request's are padding and change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from qanat.kernels.held_rows import HeldRows
from qanat.kernels.lens import Lens
from qanat.kernels.packing import as_given
from qanat.kernels.quantised import QuantisedMatrix
from qanat.kernels.reference import attention as _attention
from qanat.kernels.reference import choice as _choice
from qanat.kernels.reference import delta_net as _delta_net
from qanat.kernels.reference import heads as _heads
from qanat.kernels.reference import mlp as _mlp
from qanat.kernels.reference import moe as _moe
from qanat.kernels.reference import norm as _norm
from qanat.kernels.reference import rotary as _rotary
from qanat.kernels.reference import shared_rows as _shared_rows
from qanat.kernels.registry import op
from qanat.kernels.rows import RowFormat, Rows, SharedExpert, SharedRows, plain
from qanat.kernels.state_stores import StateStore


@op(row_invariant=True)
def pack_matrix(weight: Tensor | QuantisedMatrix, segment_length: int = 0) -> Any:
    """A matrix [out, in] as this provider's products read it: `linear`, `logits` and `embedding` take the result.

    A tensor that is a shard of a matrix's inputs comes with the `segment_length` of the whole matrix, so that its sums
    are branches of the whole one's (rule R12); quantised matrices hold theirs. 0 if it is the whole matrix.

    Quantised matrices are taken too: their products quantise the activations, with the bits of the reference
    (`qanat.kernels.reference.quantised`) on every provider.

    The reference reads the tensor itself, and so does any provider that does not know its type. Whoever packs need not
    keep the tensor.
    """
    return weight


@op(row_invariant=True)
def pack_experts(weight: Tensor | QuantisedMatrix) -> Any:
    """The same for the matrices [E, out, in] of all experts: `moe_experts` takes the result."""
    return weight


@op(row_invariant=True)
def embedding(token_ids: Tensor, weight: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Rows of the table: token_ids [T], weight [V, C] (a tensor or what `pack_matrix` made of it) -> [T, C].

    They come in the table's type, those of a quantised table in `dtype` (fp32 if None).
    """
    return _mlp.embedding(token_ids, as_given(weight), dtype)


@op(row_invariant=True)
def linear(x: Rows, weight: Any) -> Tensor:
    """Product of x [T, in] with the transposed weight [out, in], as it is or packed -> [T, out]."""
    return _mlp.linear(plain(x), as_given(weight))


@op(row_invariant=True)
def linears(x: Rows, weights: Sequence[Any]) -> tuple[Tensor, ...]:
    """The products of `linear` of the same rows with several weights."""
    return tuple(_mlp.linear(plain(x), as_given(weight)) for weight in weights)


@op(row_invariant=True)
def logits(hidden: Rows, weight: Any) -> Tensor:
    """Scores of the vocabulary: hidden [T, C], weight [V, C] -> [T, V] fp32, never rounded to a narrower type."""
    return _mlp.logits(plain(hidden), as_given(weight))


@op(row_invariant=True)
def choose_tokens(scores: Tensor, num_valid: int, draws: Tensor | None = None) -> Tensor:
    """A token of each row of fp32 scores [T, V], among the first `num_valid`; [2, T] int64.

    Args:
        scores: of the vocabulary.
        num_valid: ids from here on are not chosen.
        draws: [T, 32] uint8, the bytes of `qanat.kernels.draws.DRAW`; None takes the largest score of each row.

    Returns:
        The tokens, and 1 where all scores of the row are finite, otherwise 0. Of several equal ones the lowest id wins
        (rule R11); -1 stands where none is above -inf. A token means nothing where a score is infinite or no number.
    """
    return _choice.choose_tokens(scores, num_valid, draws)


@op(row_invariant=True)
def known_tokens(choice: Tensor) -> Tensor:
    """Tokens [T] int64 of what `choose_tokens` gave [2, T], as further rows may read them: 0 where there is none."""
    return _choice.known_tokens(choice)


@op(row_invariant=True)
def join_rows(parts: Sequence[Tensor]) -> Tensor:
    """Rows [T, C1], [T, C2], ... of one type side by side -> [T, C1 + C2 + ...]."""
    return torch.cat(tuple(parts), -1)


@op(row_invariant=True)
def store_rows(x: Tensor, places: Tensor, table: Tensor) -> Tensor:
    """The table [S, C] with rows x [T, C] at `places` [T] int64, each another one; rows with -1 are left out.

    It is changed in place and has the type of x.
    """
    known = places >= 0
    return table.index_copy_(0, places[known], x[known])


@op(row_invariant=True)
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """The gated unit silu(gate) * up, both [T, C]."""
    return _mlp.swiglu(gate, up)


@op(row_invariant=True)
def rms_norm(x: Tensor, weight: Tensor, eps: float, zero_centred: bool) -> Tensor:
    """The norm x / sqrt(mean(x^2) + eps) * weight over the last axis; zero-centred weights count as 1 + weight."""
    return _norm.rms_norm(x, weight, eps, zero_centred)


@op(row_invariant=True)
def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, zero_centred: bool
) -> tuple[Tensor, Tensor]:
    """Both (`rms_norm` of x + residual, x + residual); the sum is rounded before the norm reads it."""
    return _norm.add_rms_norm(x, residual, weight, eps, zero_centred)


@op(row_invariant=True)
def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm x / sqrt(mean(x^2) + eps) * weight * silu(gate) over the last axis."""
    return _norm.gated_rms_norm(x, gate, weight, eps)


@op(row_invariant=True)
def share_rows(x: Tensor, form: RowFormat) -> SharedRows:
    """Rows x [T, in] for several products, quantised once for those of this format (`row_format`).

    A quantised row is a function of the row as it is stored (rules R5 and R9), so products have the same bits with it
    and without. The same holds of the ops below, which are an op above and this one in one call.
    """
    return _shared_rows.share_rows(x, form)


@op(row_invariant=True)
def shared_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, zero_centred: bool, form: RowFormat
) -> tuple[SharedRows, Tensor]:
    """See `add_rms_norm` and `share_rows`; x and residual [T, C]."""
    return _shared_rows.shared_add_rms_norm(x, residual, weight, eps, zero_centred, form)


@op(row_invariant=True)
def shared_gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float, form: RowFormat) -> SharedRows:
    """See `gated_rms_norm` and `share_rows`: x and gate [T, H, D] -> [T, H D]."""
    return _shared_rows.shared_gated_rms_norm(x, gate, weight, eps, form)


@op(row_invariant=True)
def shared_swiglu(gate: Tensor, up: Tensor, form: RowFormat) -> SharedRows:
    """See `swiglu` and `share_rows`."""
    return _shared_rows.shared_swiglu(gate, up, form)


@op(row_invariant=True)
def rotary_rows(
    positions: Tensor,
    inverse_frequencies: Tensor,
    mrope_section: tuple[int, int, int] | None,
    scale: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Rows cos, sin [T, R/2] in `dtype` of positions [A, T] and fp32 inverse_frequencies [R/2], times `scale`."""
    return _rotary.rotary_rows(positions, inverse_frequencies, mrope_section, scale, dtype)


@op(row_invariant=True)
def qk_norm_rotary_store(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    eps: float,
    zero_centred: bool,
    cos: Tensor,
    sin: Tensor,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    host_query_lens: Lens,
) -> Tensor:
    """What attention reads: queries, normed and rotated, and a cache that holds this step's keys and values.

    q [T, H, D] and k [T, H_kv, D] pass `rms_norm` (weights [D]; None for no norm) and have the first R of D dimensions
    rotated by cos and sin [T, R/2]: dimension i < R/2 pairs with i + R/2. Both are rounded to their type after each.
    k and v [T, H_kv, D] are then rounded to the type of `kv_cache` [2, N, block_size, H_kv, W] (contiguous, changed in
    place; W is `head_width` of D and its type: int8 has each head's fp32 scale behind its values) and stored at
    `slot_mapping` [T].

    Returns:
        The queries [T, H, D] in q's type; zero for padding rows.
    """
    return _heads.qk_norm_rotary_store(
        q, k, v, q_weight, k_weight, eps, zero_centred, cos, sin, kv_cache, slot_mapping, host_query_lens
    )


@op(row_invariant=True)
def paged_attention(
    q: Tensor,
    gate: Tensor | None,
    kv_cache: Tensor,
    block_tables: Tensor,
    host_query_lens: Lens,
    host_seq_lens: Lens,
    scale: float,
) -> Tensor:
    """Causal attention at absolute positions over a cache that holds this step's keys and values already.

    They are read back as they were stored (rule R9), through `block_tables` [R, max_blocks]; for `kv_cache` see
    `qk_norm_rotary_store`. Query head h of q [T, H, D] reads KV head h // (H / H_kv); `scale` multiplies q k. The
    result is multiplied by the sigmoid of `gate` [T, H, D] where there is one. Temporary memory stays below 64 MiB.

    Returns:
        [T, H, D] in q's type; zero for padding rows.
    """
    return _attention.paged_attention(q, gate, kv_cache, block_tables, host_query_lens, host_seq_lens, scale)


@op(row_invariant=True)
def gated_delta_net(
    x: Tensor,
    a: Tensor,
    b: Tensor,
    weight: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    conv_states: Tensor,
    states: Tensor,
    state_ids: Tensor,
    num_computed: Tensor,
    host_query_lens: Lens,
    held: HeldRows | None,
    stores: Sequence[StateStore] = (),
) -> Tensor:
    """Linear attention: causal convolution, gates and the gated delta rule -> [T, HV, dv] in x's type.

    x [T, C] holds queries, keys and values, C = 2 HK dk + HV dv. They pass a depthwise causal convolution over time
    with `weight` [C, taps], whose last tap multiplies the row itself, and silu; the result is rounded to x's type.
    Then queries and keys are scaled to unit length, queries also by dk^-1/2; value head j reads key head
    j // (HV / HK). With g = -exp(a_log) softplus(a + dt_bias) and beta = sigmoid(b), of a and b [T, HV], a_log and
    dt_bias [HV], each row changes a matrix S, in fp32 (rule R3):

        S <- e^g S;  d = beta (v - k S);  S <- S + k d;  result = q S

    `conv_states` [S, taps - 1, C] holds each request's last raw inputs, oldest first, and `states` [S, HV, dk, dv] fp32
    its matrices S. They are read (as zeros where `num_computed` is 0) and replaced in place, at `state_ids` [R], for
    requests with rows. With `held`, requests first absorb those of their held rows that were accepted, and where
    `are_held` says so, have all results of this step's rows while the states keep what they held before them.

    States that requests pass on the way are left at other places too, as `stores` say: with the bits that they would
    have if the step ended there.

    Raises:
        IndexError: more rows are held than there is room for, or by a request that has absorbed none; or a store lies
            where no state passes.
    """
    return _delta_net.gated_delta_net(
        x,
        a,
        b,
        weight,
        a_log,
        dt_bias,
        conv_states,
        states,
        state_ids,
        num_computed,
        host_query_lens,
        held,
        stores,
    )


@op(row_invariant=True)
def moe_route(router_logits: Tensor, top_k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    """Chosen experts of router_logits [T, E]: (weights [T, K] fp32, expert ids [T, K] int64).

    Probabilities are a softmax over all experts; chosen are the largest, ordered by (value descending, id
    ascending), and scaled to sum to one where `renormalise` is true.
    """
    return _moe.moe_route(router_logits, top_k, renormalise)


@op(row_invariant=True)
def moe_experts(x: Rows, expert_ids: Tensor, gate_up: Any, down: Any) -> Tensor:
    """Unweighted down_e(swiglu(gate_up_e(x))) for each chosen expert e of x [T, C] -> [T, K, C].

    gate_up [E, 2I, C] holds the gate's rows first; down is [E, C, I]. Experts that no row chose are not read.
    """
    return _moe.moe_experts(plain(x), expert_ids, as_given(gate_up), as_given(down))


@op(row_invariant=True)
def moe_combine(
    expert_out: Tensor, weights: Tensor, shared: Tensor | None, shared_gate: Tensor | None
) -> Tensor:
    """Sum over K of expert_out [T, K, C] * weights [T, K] in order, plus shared [T, C] * sigmoid(gate [T, 1])."""
    return _moe.moe_combine(expert_out, weights, shared, shared_gate)


@op(row_invariant=True)
def moe_mixture(
    x: Rows, expert_ids: Tensor, weights: Tensor, gate_up: Any, down: Any, shared: SharedExpert | None
) -> Tensor:
    """What `moe_combine` makes of `moe_experts` and of the shared expert, in one call -> [T, C].

    For ranks that hold a part of every expert: where experts lie on different ranks, an exchange stands between.
    """
    own = None if shared is None else shared._replace(down=as_given(shared.down))
    return _moe.moe_mixture(plain(x), expert_ids, weights, as_given(gate_up), as_given(down), own)
