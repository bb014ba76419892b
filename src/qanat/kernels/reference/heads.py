"""Queries, keys and values on their way to attention."""

from __future__ import annotations

from torch import Tensor

from qanat.kernels.lens import Lens, as_ints
from qanat.kernels.reference.cache_rows import stored_heads
from qanat.kernels.reference.norm import rms_norm
from qanat.kernels.reference.rotary import rotary_apply


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
    """Norms and rotates queries and keys, and stores keys and values."""
    num_rows = sum(as_ints(host_query_lens))
    q, k = (
        x if weight is None else rms_norm(x, weight, eps, zero_centred)
        for x, weight in ((q, q_weight), (k, k_weight))
    )
    store_heads(kv_cache, rotary_apply(k, cos, sin)[:num_rows], v[:num_rows], slot_mapping[:num_rows])
    queries = rotary_apply(q, cos, sin)
    queries[num_rows:] = 0
    return queries


def store_heads(kv_cache: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """Puts keys and values [n, H_kv, D] into `kv_cache` at slots [n] int64, in its type."""
    _, _, _, num_kv_heads, head_width = kv_cache.shape
    for stored, heads in zip(kv_cache.unbind(0), (keys, values), strict=True):
        stored.view(-1, num_kv_heads, head_width).index_copy_(0, slots, stored_heads(heads, stored.dtype))
