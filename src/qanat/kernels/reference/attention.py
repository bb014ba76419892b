"""Causal attention over a paged KV cache, with bounded scratch however long the sequence is.

Keys are read in chunks of a fixed size, in ascending order, and folded into a running maximum, sum and weighted
value (the online softmax of Milakov and Gimelshein 2018). A chunk always has its full size, with keys that a row must
not see masked, and there are never fewer rows than keep their order of summation. So what a row gets depends on
absolute positions only (rule R1): whether it is computed alone or with its prompt changes no bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qanat.kernels.lens import Lens, as_ints
from qanat.kernels.reference.cache_rows import read_heads
from qanat.kernels.reference.elementwise import elementwise
from qanat.kernels.reference.uncut import max_uncut_inputs
from qanat.kernels.row_padding import FIXED_WIDE_ROWS, padded_query_rows, padded_wide_rows

KEYS_PER_CHUNK = 256
"""Keys read at a time, rounded down to whole blocks (at least one block)."""

MAX_SCRATCH_BYTES = 64 * 2**20
"""Bound on temporary memory of one call, outputs not counted. Half is for scores, half for keys and values."""


@dataclass(frozen=True)
class _Sums:
    """What rows have of the keys so far: the largest score, the sum of weights, the weighted sum of values.

    Shapes are [B, KV heads, P, 1], the same, and [B, KV heads, P, D].
    """

    peak: Tensor
    total: Tensor
    weighted: Tensor


def paged_attention(
    q: Tensor,
    gate: Tensor | None,
    kv_cache: Tensor,
    block_tables: Tensor,
    host_query_lens: Lens,
    host_seq_lens: Lens,
    scale: float,
) -> Tensor:
    """Attends to everything stored, this step's rows included."""
    query_lens, seq_lens = as_ints(host_query_lens), as_ints(host_seq_lens)
    _, _, block_size, num_kv_heads, _ = kv_cache.shape
    head_dim = q.shape[2]
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    starts = list(itertools.accumulate(query_lens, initial=0))
    chunk = _keys_per_chunk(block_size)
    single = [request for request, query_len in enumerate(query_lens) if query_len == 1]
    if len(single) > 1:
        single.sort(key=lambda request: -seq_lens[request])
        step = _requests_at_once(q.shape[1], num_kv_heads, head_dim, chunk)
        for first in range(0, len(single), step):
            requests = single[first : first + step]
            rows = torch.tensor([starts[request] for request in requests], device=q.device)
            tables = block_tables[torch.tensor(requests, device=q.device)]
            ends = [seq_lens[request] for request in requests]
            out[rows] = _attend(q[rows].unsqueeze(1), kv_cache, tables, ends, scale).squeeze(1).to(q.dtype)
    step = _rows_at_once(q.shape[1], head_dim, chunk)
    for request, (query_len, seq_len) in enumerate(zip(query_lens, seq_lens, strict=True)):
        if query_len == 1 and len(single) > 1:
            continue
        table = block_tables[request : request + 1]
        for first in range(0, query_len, step):
            stop = min(first + step, query_len)
            own, ends = slice(starts[request] + first, starts[request] + stop), [seq_len - query_len + stop]
            out[own] = _attend(q[own].unsqueeze(0), kv_cache, table, ends, scale)[0].to(q.dtype)
    return out if gate is None else out * elementwise(torch.sigmoid, gate)


def _keys_per_chunk(block_size: int) -> int:
    return max(KEYS_PER_CHUNK // block_size, 1) * block_size


def _rows_at_once(num_heads: int, head_dim: int, num_keys: int) -> int:
    """Query rows of one request whose scores (three copies) and sums fit half the scratch."""
    bytes_per_row = 4 * num_heads * (3 * num_keys + 3 * head_dim)
    return max(MAX_SCRATCH_BYTES // 2 // bytes_per_row, 1)


def _requests_at_once(num_heads: int, num_kv_heads: int, head_dim: int, num_keys: int) -> int:
    """Requests of one row each whose keys, values (in two types), scores and sums fit half the scratch."""
    num_rows = _filled_rows(num_heads // num_kv_heads, head_dim)
    bytes_per_head = 4 * (4 * num_keys * head_dim + num_rows * (3 * num_keys + 3 * head_dim))
    return max(MAX_SCRATCH_BYTES // 2 // (num_kv_heads * bytes_per_head), 1)


def _attend(q: Tensor, kv_cache: Tensor, block_tables: Tensor, ends: Sequence[int], scale: float) -> Tensor:
    """Attends with the last rows of B requests, longest first.

    Args:
        q: [B, n, H, D], of positions `end - n` to `end - 1`.
        kv_cache: [2, N, block_size, KV heads, head width].
        block_tables: [B, max_blocks].
        ends: how many keys the last row of each request sees.
        scale: of the scores.

    Returns:
        [B, n, H, D] fp32.
    """
    num_requests, num_rows, num_heads, head_dim = q.shape
    num_kv_heads = kv_cache.shape[3]
    group = num_heads // num_kv_heads
    num_grouped = num_rows * group
    # [B, KV heads, n * group, D]: the query heads that share a KV head become rows of one product.
    shape = (num_requests, num_kv_heads, _filled_rows(num_grouped, head_dim))
    grouped = q.new_zeros(*shape, head_dim, dtype=torch.float32)
    own = grouped[:, :, :num_grouped].unflatten(2, (num_rows, group))
    own.copy_(q.unflatten(2, (num_kv_heads, group)).transpose(1, 2)).mul_(scale)
    sums = _Sums(
        grouped.new_full((*shape, 1), -torch.inf), grouped.new_zeros(*shape, 1), torch.zeros_like(grouped)
    )
    chunk = _keys_per_chunk(kv_cache.shape[2])
    for begin in range(0, ends[0], chunk):
        left = [end - begin for end in ends if end > begin]
        keys, values = _read(kv_cache, head_dim, block_tables[: len(left)], begin, left, chunk)
        scores = _products(grouped[: len(left)].flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
        scores = scores.unflatten(0, (len(left), num_kv_heads))
        _mask(scores[:, :, :num_grouped].unflatten(2, (num_rows, group)), left)
        _fold(sums, scores, values)
    attended = (sums.weighted / sums.total)[:, :, :num_grouped].unflatten(2, (num_rows, group))
    return attended.transpose(1, 2).reshape(q.shape)


def _filled_rows(num_rows: int, head_dim: int) -> int:
    return padded_query_rows(num_rows, head_dim) if max_uncut_inputs() else padded_wide_rows(num_rows)


def _products(rows: Tensor, others: Tensor) -> Tensor:
    """Products of rows [B, P, K] with [B, K, N]; always of as many rows where their number changes the sums."""
    if max_uncut_inputs():
        return torch.bmm(rows, others)
    parts = [torch.bmm(part.contiguous(), others) for part in rows.split(FIXED_WIDE_ROWS, 1)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _mask(scores: Tensor, left: Sequence[int]) -> None:
    """Hides from each row the keys after its own; scores [A, KV heads, n, group, chunk], in place."""
    num_rows, chunk = scores.shape[2], scores.shape[4]
    for request, num_keys in enumerate(left):
        if num_rows == 1:
            scores[request, ..., num_keys:] = -torch.inf
        elif num_keys - num_rows + 1 < chunk:
            own = torch.arange(num_keys - num_rows, num_keys, device=scores.device)
            later = torch.arange(chunk, device=scores.device) > own.unsqueeze(1)
            scores[request].masked_fill_(later.unsqueeze(1), -torch.inf)


def _fold(sums: _Sums, scores: Tensor, values: Tensor) -> None:
    """Adds a chunk of keys to the sums of the first requests; each row's first chunk has a key for it."""
    peak, total, weighted = (each[: scores.shape[0]] for each in (sums.peak, sums.total, sums.weighted))
    highest = torch.maximum(peak, scores.amax(-1, keepdim=True))
    weights = elementwise(torch.exp, scores.sub_(highest))
    decay = elementwise(torch.exp, peak.sub_(highest))
    total.mul_(decay).add_(weights.sum(-1, keepdim=True))
    weighted.mul_(decay).flatten(0, 1).add_(_products(weights.flatten(0, 1), values.flatten(0, 1)))
    peak.copy_(highest)


def _read(
    kv_cache: Tensor, head_dim: int, block_tables: Tensor, begin: int, left: Sequence[int], chunk: int
) -> tuple[Tensor, Tensor]:
    """Keys and values [A, KV heads, chunk, D] fp32 from key `begin` on; where none are left, any keys and zeros."""
    _, _, block_size, num_kv_heads, _ = kv_cache.shape
    wide = torch.empty(2, len(left), num_kv_heads, chunk, head_dim, device=kv_cache.device)
    for request, num_left in enumerate(left):
        num_keys, first = min(num_left, chunk), begin // block_size
        blocks = block_tables[request, first : first - (-num_keys // block_size)]
        stored = kv_cache.index_select(1, blocks).flatten(1, 2)[:, :num_keys]
        wide[:, request, :, :num_keys] = read_heads(stored).transpose(1, 2)
        wide[1, request, :, num_keys:] = 0.0
    keys, values = wide.unbind(0)
    return keys, values
