"""Attention, and what brings queries, keys and values there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from qanat.core.cache_spec import SCALE_BYTES
from qanat.kernels.native import rowwise, sequence
from qanat.kernels.reference import attention, heads
from qanat.kernels.reference.cache_rows import read_heads
from qanat.kernels.reference.rotary import rotary_apply
from tests.kernels.native.paths import TYPES, close, on_every_path, same_bits

EPS = 1e-6


class Provider(NamedTuple):
    """Both ops of one provider."""

    store: Callable[..., Tensor]
    attend: Callable[..., Tensor]


NATIVE = Provider(sequence.qk_norm_rotary_store, sequence.paged_attention)
REFERENCE = Provider(heads.qk_norm_rotary_store, attention.paged_attention)


def int32(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


class Attention:
    """One layer's cache for sequences of 200 tokens, in blocks of a scrambled order."""

    def __init__(
        self, dtype: torch.dtype, cache_dtype: torch.dtype, sizes: tuple[int, int, int], block_size: int
    ) -> None:
        self.num_heads, self.num_kv_heads, self.dim = sizes
        self.block_size = block_size
        self.length = 200
        per_request = -(-self.length // block_size)
        self.tables = (torch.randperm(3 * per_request) + 1).view(3, per_request).int()
        width = self.dim + SCALE_BYTES * (cache_dtype == torch.int8)
        shape = (2, 3 * per_request + 1, block_size, self.num_kv_heads, width)
        never_written = (
            -1 if cache_dtype == torch.int8 else torch.nan
        )  # four such bytes are a scale that is NaN
        self.empty = torch.full(shape, never_written, dtype=cache_dtype)
        self.pairs = [torch.randn(self.length, self.num_heads, 2 * self.dim).to(dtype) for _ in range(3)]
        self.keys = [torch.randn(self.length, self.num_kv_heads, self.dim).to(dtype) for _ in range(3)]
        self.weights = (torch.randn(2, self.dim) / 10).to(dtype).unbind(0)
        angles = torch.rand(self.length, self.dim // 4) * 9
        self.angles = angles.cos().to(dtype), angles.sin().to(dtype)
        self.values = [torch.randn(self.length, self.num_kv_heads, self.dim).to(dtype) for _ in range(3)]

    def run(
        self, pieces: Sequence[Sequence[tuple[int, int, int]]], provider: Provider = NATIVE
    ) -> tuple[Tensor, Tensor]:
        """Steps of (request, first, last) pieces, each step with a row of padding; all rows, request by request.

        Returns:
            Results, and the cache.
        """
        cache = self.empty.clone()
        out: dict[tuple[int, int], Tensor] = {}
        for step in pieces:
            q, gate = torch.cat([self.pairs[r][a:b] for r, a, b in step] + [self.pairs[0][:1]]).chunk(2, -1)
            k = torch.cat([self.keys[r][a:b] for r, a, b in step] + [self.keys[0][:1]])
            v = torch.cat([self.values[r][a:b] for r, a, b in step] + [self.values[0][:1]])
            slots = [
                int(self.tables[r, p // self.block_size]) * self.block_size + p % self.block_size
                for r, a, b in step
                for p in range(a, b)
            ]
            angles = [torch.cat([angle[a:b] for _, a, b in step] + [angle[:1]]) for angle in self.angles]
            lens, ends = [b - a for _, a, b in step], [b for _, _, b in step]
            all_slots = torch.tensor([*slots, -1])
            queries = provider.store(q, k, v, *self.weights, EPS, True, *angles, cache, all_slots, lens)
            tables = self.tables[[r for r, _, _ in step]]
            result = provider.attend(queries, gate, cache, tables, lens, ends, self.dim**-0.5)
            assert not result[-1].any() and not queries[-1].any(), "padding rows are zero"
            rows = iter(result)
            out |= {(r, p): next(rows) for r, a, b in step for p in range(a, b)}
        return torch.stack([out[key] for key in sorted(out)]), cache


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("cache_dtype", [*TYPES, torch.int8])
@pytest.mark.parametrize(
    ("sizes", "block_size"), [((4, 2, 64), 64), ((6, 1, 16), 16), ((2, 2, 256), 48), ((5, 1, 32), 64)]
)
def test_attention(
    dtype: torch.dtype, cache_dtype: torch.dtype, sizes: tuple[int, int, int], block_size: int
) -> None:
    layer = Attention(dtype, cache_dtype, sizes, block_size)
    whole = [[(r, 0, 200) for r in range(3)]]
    together, cache = on_every_path(lambda: layer.run(whole))
    one_by_one = [[(r, 0, 200)] for r in range(3)]
    chunked = [[(r, a, min(a + 37, 200)) for r in (2, 0, 1)] for a in range(0, 200, 37)]
    decoded = [[(0, 0, 190)], [(1, 0, 200), (2, 0, 200)], *([(0, p, p + 1)] for p in range(190, 200))]
    for pieces in (one_by_one, chunked, decoded):
        ours, own_cache = layer.run(pieces)
        assert same_bits(ours, together) and same_bits(own_cache, cache)
    bound = torch.float32 if (dtype, cache_dtype) == (torch.float32, torch.float32) else torch.bfloat16
    close(together, layer.run(whole, REFERENCE)[0], bound)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("cache_dtype", [*TYPES, torch.int8])
@pytest.mark.parametrize("half", [3, 16, 32])
@pytest.mark.parametrize("zero_centred", [False, True, None])
def test_heads_have_the_bits_of_one_op_after_the_other(
    dtype: torch.dtype, cache_dtype: torch.dtype, half: int, zero_centred: bool | None
) -> None:
    """Each op rounds to the type of the heads. Torch rounds products and sums apart, as the kernels do.

    Without a flavour there is no norm.
    """
    num_rows, num_real, dim = 9, 7, 64
    q, gate = torch.randn(num_rows, 3, 2 * dim).to(dtype).chunk(2, -1)
    k, v = torch.randn(2, num_rows, 2, dim).to(dtype).unbind(0)
    weights = [None, None] if zero_centred is None else [*torch.randn(2, dim).to(dtype)]
    flavour = bool(zero_centred)
    cos, sin = torch.randn(2, num_rows, half).to(dtype)
    slots = torch.tensor([5, 30, 2, 3, 17, 16, 9, -1, -1])
    width = dim + SCALE_BYTES * (cache_dtype == torch.int8)

    def run() -> tuple[Tensor, Tensor]:
        cache = torch.zeros(2, 4, 8, 2, width, dtype=cache_dtype)
        given = (q, k, v, *weights, EPS, flavour, cos, sin, cache, slots, [4, 0, 3])
        return sequence.qk_norm_rotary_store(*given), cache

    queries, cache = on_every_path(run)

    def turned(x: Tensor, weight: Tensor | None) -> Tensor:
        normed = x[:num_real] if weight is None else rowwise.rms_norm(x[:num_real], weight, EPS, flavour)
        return rotary_apply(normed.float(), cos[:num_real].float(), sin[:num_real].float()).to(dtype)

    expected = torch.zeros_like(cache)
    heads.store_heads(expected, turned(k, weights[1]), v[:num_real], slots[:num_real])
    assert same_bits(queries[:num_real], turned(q, weights[0])) and not queries[num_real:].any()
    assert same_bits(cache, expected)
    for first, last in ((0, 1), (3, 7)):
        own = slice(first, last)
        alone = sequence.qk_norm_rotary_store(
            *(q[own], k[own], v[own], *weights, EPS, flavour, cos[own], sin[own]),
            *(torch.zeros_like(cache), slots[own], [last - first]),
        )
        assert same_bits(alone, queries[own])


def test_an_int8_cache_holds_what_the_reference_holds() -> None:
    rows = torch.randn(6, 2, 32)
    rows[1, 0] = 0.0
    rows[2, 1, 5] = torch.inf
    rows[3, 0, 7] = torch.nan
    rows[4] *= 1e-44
    caches = [torch.zeros(2, 2, 8, 2, 36, dtype=torch.int8) for _ in range(2)]
    weights, (cos, sin) = torch.ones(2, 32), torch.rand(2, 6, 8)
    for cache, provider in zip(caches, (NATIVE, REFERENCE), strict=True):
        given = (rows, rows, rows, *weights, EPS, False, cos, sin, cache, torch.arange(8, 14), [6])
        provider.store(*given)
    ours, theirs = (read_heads(cache)[1] for cache in caches)
    assert torch.equal(ours.nan_to_num(), theirs.nan_to_num())
    assert torch.equal(ours.isnan(), theirs.isnan())
    stored = ours[1]
    assert (stored[0] - rows[0]).abs().max() <= rows[0].abs().max() / 254 * 1.001
    assert not stored[1, 0].any() and stored[2, 1].isnan().all() and stored[3, 0].isnan().all()
