"""Ops that read what earlier rows of a request have left. Shapes that the module does not cover take the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from qanat.kernels.lens import Lens, as_host_int32
from qanat.kernels.native.module import native
from qanat.kernels.native.tensors import NO_ROWS, are_native, as_int32, is_bf16, new, readable, rows
from qanat.kernels.recording import host_call
from qanat.kernels.reference import attention as reference_attention
from qanat.kernels.reference import delta as reference_delta

LANES = 16
MAX_HEAD_DIM = 256
MAX_TAPS = 8
CACHE_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
"""`Kind` of csrc/kernels/arguments.hpp."""


def is_head_covered(head_dim: int) -> bool:
    """True if attention and delta rule take heads of this size."""
    return head_dim % LANES == 0 and 0 < head_dim <= MAX_HEAD_DIM


def paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor | None,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    block_tables: Tensor,
    host_query_lens: Lens,
    host_seq_lens: Lens,
    scale: float,
) -> Tensor:
    """See `qanat.kernels.ops.paged_attention`."""
    num_rows, num_heads, head_dim = q.shape
    cache_kind = CACHE_KINDS.get(kv_cache.dtype)
    if cache_kind is None or not (are_native(q, k, v, gate) and is_head_covered(head_dim)):
        return host_call(
            reference_attention.paged_attention,
            q,
            k,
            v,
            gate,
            kv_cache,
            slot_mapping,
            block_tables,
            host_query_lens,
            host_seq_lens,
            scale,
        )
    q, k, v = readable(q), readable(k), readable(v)
    gate = readable(gate) if gate is not None else None
    _, _, block_size, num_kv_heads, _ = kv_cache.shape
    slots, tables = slot_mapping.to(torch.int64).contiguous(), as_int32(block_tables)
    query_lens, seq_lens = as_host_int32(host_query_lens), as_host_int32(host_seq_lens)
    out = new((num_rows, num_heads, head_dim), q.dtype)
    native().attention(
        rows(q),
        rows(k),
        rows(v),
        NO_ROWS if gate is None else rows(gate),
        num_rows,
        kv_cache.data_ptr(),
        cache_kind,
        kv_cache[0].numel(),
        slots.data_ptr(),
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


def causal_conv(
    x: Tensor,
    weight: Tensor,
    states: Tensor,
    state_ids: Tensor,
    num_computed: Tensor,
    host_query_lens: Lens,
) -> Tensor:
    """See `qanat.kernels.ops.causal_conv`."""
    num_taps = weight.shape[1]
    if not (are_native(x, weight, states) and num_taps <= MAX_TAPS and states.is_contiguous()):
        return host_call(
            reference_delta.causal_conv, x, weight, states, state_ids, num_computed, host_query_lens
        )
    x, weight = readable(x), weight.contiguous()
    ids, computed = as_int32(state_ids), as_int32(num_computed)
    query_lens = as_host_int32(host_query_lens)
    out = new(x.shape, x.dtype)
    native().conv(
        rows(x),
        x.shape[0],
        weight.data_ptr(),
        is_bf16(weight),
        states.data_ptr(),
        is_bf16(states),
        ids.data_ptr(),
        computed.data_ptr(),
        query_lens.shape[0],
        query_lens.data_ptr(),
        out.data_ptr(),
        is_bf16(out),
        x.shape[1],
        num_taps,
    )
    return out


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    states: Tensor,
    state_ids: Tensor,
    num_computed: Tensor,
    query_start_loc: Tensor,
    host_query_lens: Lens,
) -> Tensor:
    """See `qanat.kernels.ops.gated_delta_rule`."""
    is_covered = is_head_covered(q.shape[2]) and v.shape[2] % LANES == 0
    is_plain = states.dtype == torch.float32 and states.is_contiguous()
    if not (are_native(q, k, v, log_decay, beta, states) and is_covered and is_plain):
        return host_call(
            reference_delta.gated_delta_rule,
            q,
            k,
            v,
            log_decay,
            beta,
            states,
            state_ids,
            num_computed,
            query_start_loc,
            host_query_lens,
        )
    q, k, v = readable(q), readable(k), readable(v)
    decay, strength = log_decay.float().contiguous(), beta.float().contiguous()
    ids, computed = as_int32(state_ids), as_int32(num_computed)
    query_lens = as_host_int32(host_query_lens)
    out = new(v.shape, v.dtype)
    native().delta(
        rows(q),
        rows(k),
        rows(v),
        v.shape[0],
        decay.data_ptr(),
        strength.data_ptr(),
        states.data_ptr(),
        ids.data_ptr(),
        computed.data_ptr(),
        query_lens.shape[0],
        query_lens.data_ptr(),
        out.data_ptr(),
        is_bf16(out),
        k.shape[1],
        v.shape[1],
        k.shape[2],
        v.shape[2],
    )
    return out
