"""Ops that read what earlier rows of a request have left. Shapes that the module does not cover take the reference."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from qanat.kernels.held_rows import HeldRows
from qanat.kernels.lens import Lens, as_host_int32
from qanat.kernels.native.module import native
from qanat.kernels.native.tensors import (
    NO_ROWS,
    address_of,
    are_native,
    as_int32,
    is_bf16,
    new,
    readable,
    rows,
)
from qanat.kernels.recording import host_call
from qanat.kernels.reference import attention as reference_attention
from qanat.kernels.reference import delta_net as reference_delta_net
from qanat.kernels.reference import heads as reference_heads
from qanat.kernels.state_stores import StateStore

LANES = 16
MAX_HEAD_DIM = 256
MAX_TAPS = 8
CACHE_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
"""`Kind` of csrc/kernels/arguments.hpp."""


def is_head_covered(head_dim: int) -> bool:
    """True if attention and delta rule take heads of this size."""
    return head_dim % LANES == 0 and 0 < head_dim <= MAX_HEAD_DIM


def _is_cache_covered(kv_cache: Tensor) -> bool:
    return kv_cache.dtype in CACHE_KINDS


def _are_alike(x: Tensor | None, y: Tensor | None) -> bool:
    """True if both are there, of one type, or neither is."""
    return (x is None and y is None) or (x is not None and y is not None and x.dtype == y.dtype)


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
    """See `qanat.kernels.ops.qk_norm_rotary_store`."""
    is_covered = are_native(q, k, v, q_weight, k_weight, cos, sin) and is_head_covered(q.shape[-1])
    if not (
        is_covered and _are_alike(q_weight, k_weight) and _are_alike(cos, sin) and _is_cache_covered(kv_cache)
    ):
        norms, places = (q_weight, k_weight, eps, zero_centred), (kv_cache, slot_mapping, host_query_lens)
        return host_call(reference_heads.qk_norm_rotary_store, q, k, v, *norms, cos, sin, *places)
    num_rows, num_heads, head_dim = q.shape
    q, k, v = readable(q), readable(k), readable(v)
    cos, sin = cos.contiguous(), sin.contiguous()
    q_weight, k_weight = (None if each is None else each.contiguous() for each in (q_weight, k_weight))
    slots, query_lens = slot_mapping.to(torch.int64).contiguous(), as_host_int32(host_query_lens)
    out = new(q.shape, q.dtype)
    native().heads(
        rows(q),
        rows(k),
        rows(v),
        num_rows,
        address_of(q_weight),
        address_of(k_weight),
        q_weight is not None and is_bf16(q_weight),
        zero_centred,
        eps,
        cos.data_ptr(),
        sin.data_ptr(),
        is_bf16(cos),
        cos.shape[-1],
        out.data_ptr(),
        kv_cache.data_ptr(),
        CACHE_KINDS[kv_cache.dtype],
        kv_cache[0].numel(),
        slots.data_ptr(),
        query_lens.shape[0],
        query_lens.data_ptr(),
        num_heads,
        k.shape[1],
        head_dim,
    )
    return out


def paged_attention(
    q: Tensor,
    gate: Tensor | None,
    kv_cache: Tensor,
    block_tables: Tensor,
    host_query_lens: Lens,
    host_seq_lens: Lens,
    scale: float,
) -> Tensor:
    """See `qanat.kernels.ops.paged_attention`."""
    if not (are_native(q, gate) and is_head_covered(q.shape[-1]) and _is_cache_covered(kv_cache)):
        places = (kv_cache, block_tables, host_query_lens, host_seq_lens)
        return host_call(reference_attention.paged_attention, q, gate, *places, scale)
    num_rows, num_heads, head_dim = q.shape
    q = readable(q)
    gate = readable(gate) if gate is not None else None
    _, _, block_size, num_kv_heads, _ = kv_cache.shape
    tables = as_int32(block_tables)
    query_lens, seq_lens = as_host_int32(host_query_lens), as_host_int32(host_seq_lens)
    out = new((num_rows, num_heads, head_dim), q.dtype)
    native().attention(
        rows(q),
        NO_ROWS if gate is None else rows(gate),
        num_rows,
        kv_cache.data_ptr(),
        CACHE_KINDS[kv_cache.dtype],
        kv_cache[0].numel(),
        tables.data_ptr(),
        tables.shape[1],
        query_lens.shape[0],
        query_lens.data_ptr(),
        seq_lens.data_ptr(),
        out.data_ptr(),
        is_bf16(out),
        block_size,
        num_heads,
        num_kv_heads,
        head_dim,
        scale,
    )
    return out


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
    """See `qanat.kernels.ops.gated_delta_net`."""
    _, num_value_heads, key_dim, value_dim = states.shape
    is_covered = is_head_covered(key_dim) and value_dim % LANES == 0 and weight.shape[1] <= MAX_TAPS
    is_plain = states.dtype == torch.float32 and states.is_contiguous() and conv_states.is_contiguous()
    if not (are_native(x, a, b, weight, a_log, dt_bias, conv_states) and is_covered and is_plain):
        weights, places = (weight, a_log, dt_bias), (conv_states, states, state_ids)
        runs = (num_computed, host_query_lens, held, stores)
        return host_call(reference_delta_net.gated_delta_net, x, a, b, *weights, *places, *runs)
    x, a, b = readable(x), readable(a), readable(b)
    by_tap, a_log, dt_bias = weight.t().contiguous(), a_log.float().contiguous(), dt_bias.contiguous()
    ids, computed, query_lens = as_int32(state_ids), as_int32(num_computed), as_host_int32(host_query_lens)
    wanted = torch.tensor(stores, dtype=torch.int32) if stores else None
    out = new((x.shape[0], num_value_heads, value_dim), x.dtype)
    native().delta_net(
        rows(x),
        rows(a),
        rows(b),
        x.shape[0],
        by_tap.data_ptr(),
        is_bf16(by_tap),
        a_log.data_ptr(),
        dt_bias.data_ptr(),
        is_bf16(dt_bias),
        conv_states.data_ptr(),
        is_bf16(conv_states),
        states.data_ptr(),
        ids.data_ptr(),
        computed.data_ptr(),
        query_lens.shape[0],
        query_lens.data_ptr(),
        *_held(held),
        address_of(wanted),
        len(stores),
        out.data_ptr(),
        is_bf16(out),
        weight.shape[1],
        (x.shape[1] - num_value_heads * value_dim) // (2 * key_dim),
        num_value_heads,
        key_dim,
        value_dim,
    )
    return out


def _held(held: HeldRows | None) -> tuple[int, int, int, int, int]:
    """(inputs, gates, most rows, accepted, are held): addresses, 0 where nothing is ever held.

    Whoever holds rows sees to it that all four tensors are contiguous and stay where they are.
    """
    if held is None:
        return 0, 0, 0, 0, 0
    inputs, gates, accepted, are_held = held
    return inputs.data_ptr(), gates.data_ptr(), inputs.shape[1], accepted.data_ptr(), are_held.data_ptr()
