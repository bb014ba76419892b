"""Causal attention over a paged KV cache, with bounded scratch however long the sequence is.

Keys are read in chunks of a fixed size, in ascending order, and folded into a running maximum, sum and weighted
value (the online softmax of Milakov and Gimelshein 2018), so the order of summation depends on absolute
positions only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

KEYS_PER_CHUNK = 512
"""Keys read at a time, rounded down to whole blocks (at least one block)."""

MAX_SCRATCH_BYTES = 64 * 2**20
"""Bound on temporary memory of one call, outputs not counted. Half is for scores, half for keys and values."""

Folded = tuple[Tensor, Tensor, Tensor]
"""Running maximum, sum of weights, weighted sum of values: [KV heads, rows, 1], the same, [KV heads, rows, D]."""


def paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor | None,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    block_tables: Tensor,
    host_query_lens: Sequence[int],
    host_seq_lens: Sequence[int],
    scale: float,
) -> Tensor:
    """Stores this step's K and V, then attends to everything stored, this step's rows included."""
    num_rows = sum(host_query_lens)
    _, _, block_size, num_kv_heads, head_dim = kv_cache.shape
    slots = slot_mapping[:num_rows]
    for stored, new in zip(kv_cache.unbind(0), (k, v), strict=True):
        flat = stored.view(-1, num_kv_heads, head_dim)
        flat.index_copy_(0, slots, new[:num_rows].to(stored.dtype))
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    step = _rows_per_chunk(q.shape[1], head_dim, _keys_per_chunk(block_size))
    start = 0
    for request, (query_len, seq_len) in enumerate(zip(host_query_lens, host_seq_lens, strict=True)):
        for first in range(0, query_len, step):
            rows = slice(start + first, start + min(first + step, query_len))
            position = seq_len - query_len + first
            attended = _attend(q[rows], kv_cache, block_tables[request], position, scale)
            out[rows] = attended.to(q.dtype)
        start += query_len
    return out if gate is None else out * torch.sigmoid(gate)


def _keys_per_chunk(block_size: int) -> int:
    return max(KEYS_PER_CHUNK // block_size, 1) * block_size


def _rows_per_chunk(num_heads: int, head_dim: int, num_keys: int) -> int:
    """Query rows whose scores (three copies: raw, shifted, masked) and sums fit half the scratch."""
    bytes_per_row = 4 * num_heads * (3 * num_keys + 3 * head_dim)
    return max(MAX_SCRATCH_BYTES // 2 // bytes_per_row, 1)


def _attend(q: Tensor, kv_cache: Tensor, block_table: Tensor, position: int, scale: float) -> Tensor:
    """Rows [n, H, D] at positions `position`, `position + 1`, ...; returns [n, H, D] fp32."""
    num_rows, num_heads, head_dim = q.shape
    block_size, num_kv_heads = kv_cache.shape[2], kv_cache.shape[3]
    group = num_heads // num_kv_heads
    # [KV heads, rows * group, D]: the query heads that share a KV head become rows of one product.
    grouped = q.float().view(num_rows, num_kv_heads, group, head_dim).transpose(0, 1).flatten(1, 2) * scale
    chunk = _keys_per_chunk(block_size)
    end = position + num_rows
    folded: Folded | None = None
    for begin in range(0, end, chunk):
        stop = min(begin + chunk, end)
        blocks = block_table[begin // block_size : -(-stop // block_size)]
        keys, values = _read(kv_cache, blocks, stop - begin)
        scores = torch.bmm(grouped, keys.transpose(1, 2))
        if stop > position + 1:
            own = torch.arange(position, end, device=q.device).repeat_interleave(group)
            later = torch.arange(begin, stop, device=q.device) > own.unsqueeze(1)
            scores.masked_fill_(later, -torch.inf)
        folded = _fold(folded, scores, values)
    assert folded is not None, "every row sees at least itself"
    _, total, weighted = folded
    attended = weighted / total
    return attended.view(num_kv_heads, num_rows, group, head_dim).transpose(0, 1).reshape(q.shape)


def _fold(before: Folded | None, scores: Tensor, values: Tensor) -> Folded:
    """Adds a chunk of keys; every row has a key in the first chunk, so no maximum is ever -inf."""
    peak = scores.amax(-1, keepdim=True)
    if before is None:
        scores.sub_(peak).exp_()
        return peak, scores.sum(-1, keepdim=True), torch.bmm(scores, values)
    highest, total, weighted = before
    peak = torch.maximum(highest, peak)
    scores.sub_(peak).exp_()
    decay = (highest - peak).exp_()
    return (
        peak,
        total * decay + scores.sum(-1, keepdim=True),
        torch.baddbmm(weighted.mul_(decay), scores, values),
    )


def _read(kv_cache: Tensor, blocks: Tensor, num_keys: int) -> tuple[Tensor, Tensor]:
    """Keys and values [KV heads, num_keys, D] fp32 of consecutive blocks."""
    gathered = kv_cache.index_select(1, blocks).flatten(1, 2)[:, :num_keys]
    keys, values = gathered.float().transpose(1, 2).unbind(0)
    return keys, values
