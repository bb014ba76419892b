from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
import torch
from torch import Tensor

from qanat.core.cache_spec import SCALE_BYTES
from qanat.kernels.native import sequence
from qanat.kernels.reference import attention, delta
from qanat.kernels.reference.cache_rows import read_heads
from tests.kernels.native.paths import TYPES, close, on_every_path, same_bits

KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, CHANNELS, TAPS = 2, 4, 32, 48, 70, 4


def int32(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


class Attention:
    """One layer's cache for sequences of 200 tokens, in blocks of a scrambled order."""

    def __init__(
        self, dtype: torch.dtype, cache_dtype: torch.dtype, heads: tuple[int, int, int], block_size: int
    ) -> None:
        self.num_heads, self.num_kv_heads, self.dim = heads
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
        self.values = [torch.randn(self.length, self.num_kv_heads, self.dim).to(dtype) for _ in range(3)]

    def run(
        self,
        pieces: Sequence[Sequence[tuple[int, int, int]]],
        attend: Callable[..., Tensor] = sequence.paged_attention,
    ) -> Tensor:
        """Steps of (request, first, last) pieces, each step with a row of padding; all rows, request by request."""
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
            result = attend(
                *(q, k, v, gate, cache, torch.tensor([*slots, -1])),
                self.tables[[r for r, _, _ in step]],
                [b - a for _, a, b in step],
                [b for _, _, b in step],
                self.dim**-0.5,
            )
            assert not result[-1].any(), "padding rows are zero"
            rows = iter(result)
            out |= {(r, p): next(rows) for r, a, b in step for p in range(a, b)}
        return torch.stack([out[key] for key in sorted(out)])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("cache_dtype", [*TYPES, torch.int8])
@pytest.mark.parametrize(
    ("heads", "block_size"), [((4, 2, 64), 64), ((6, 1, 16), 16), ((2, 2, 256), 48), ((5, 1, 32), 64)]
)
def test_attention(
    dtype: torch.dtype, cache_dtype: torch.dtype, heads: tuple[int, int, int], block_size: int
) -> None:
    layer = Attention(dtype, cache_dtype, heads, block_size)
    whole = [[(r, 0, 200) for r in range(3)]]
    (together,) = on_every_path(lambda: (layer.run(whole),))
    one_by_one = [[(r, 0, 200)] for r in range(3)]
    chunked = [[(r, a, min(a + 37, 200)) for r in (2, 0, 1)] for a in range(0, 200, 37)]
    decoded = [[(0, 0, 190)], [(1, 0, 200), (2, 0, 200)], *([(0, p, p + 1)] for p in range(190, 200))]
    for pieces in (one_by_one, chunked, decoded):
        assert same_bits(layer.run(pieces), together)
    bound = torch.bfloat16 if torch.bfloat16 in (dtype, cache_dtype) else torch.float32
    close(together, layer.run(whole, attention.paged_attention), bound)


def test_an_int8_cache_holds_what_the_reference_holds() -> None:
    heads = torch.randn(6, 2, 32)
    heads[1, 0] = 0.0
    heads[2, 1, 5] = torch.inf
    heads[3, 0, 7] = torch.nan
    heads[4] *= 1e-44
    caches = [torch.zeros(2, 2, 8, 2, 36, dtype=torch.int8) for _ in range(2)]
    tables, slots, lens = int32([[1]]), torch.arange(8, 14), [6]
    for cache, attend in zip(caches, (sequence.paged_attention, attention.paged_attention), strict=True):
        attend(heads, heads, heads, None, cache, slots, tables, lens, lens, 1.0)
    assert torch.equal(*(cache.nan_to_num() for cache in map(read_heads, caches)))
    assert torch.equal(*(read_heads(cache).isnan() for cache in caches))
    stored = read_heads(caches[0])[0, 1]
    assert (stored[0] - heads[0]).abs().max() <= heads[0].abs().max() / 254 * 1.001
    assert not stored[1, 0].any() and stored[2, 1].isnan().all() and stored[3, 0].isnan().all()


class Delta:
    """Three sequences of 90 tokens for the convolution and the delta rule; states that requests never had are NaN."""

    def __init__(self, dtype: torch.dtype) -> None:
        key, value = KEY_HEADS * KEY_DIM, VALUE_HEADS * VALUE_DIM
        self.mixed = [torch.randn(90, 2 * key + value).to(dtype) for _ in range(3)]
        self.decay = [-torch.rand(90, VALUE_HEADS) for _ in range(3)]
        self.beta = [torch.rand(90, VALUE_HEADS) for _ in range(3)]
        self.weight = torch.randn(2 * key + value, TAPS).to(dtype)
        self.split = (key, key, value)
        self.dtype = dtype

    def run(
        self, pieces: Sequence[Sequence[tuple[int, int, int]]], provider: ModuleType = sequence
    ) -> tuple[Tensor, ...]:
        """See `Attention.run`; also the final states."""
        conv = torch.full((5, TAPS - 1, sum(self.split)), torch.nan, dtype=self.dtype)
        rule = torch.full((5, VALUE_HEADS, KEY_DIM, VALUE_DIM), torch.nan)
        out: dict[tuple[int, int], Tensor] = {}
        for step in pieces:
            x = torch.cat([self.mixed[r][a:b] for r, a, b in step] + [self.mixed[0][:1]])
            decay = torch.cat([self.decay[r][a:b] for r, a, b in step] + [torch.zeros(1, VALUE_HEADS)])
            beta = torch.cat([self.beta[r][a:b] for r, a, b in step] + [torch.zeros(1, VALUE_HEADS)])
            ids, done = int32([r + 1 for r, _, _ in step]), int32([a for _, a, _ in step])
            lens = [b - a for _, a, b in step]
            mixed = provider.causal_conv(x, self.weight, conv, ids, done, lens)
            q, k, v = mixed.split(self.split, -1)
            result = provider.gated_delta_rule(
                q.view(len(x), KEY_HEADS, KEY_DIM),
                k.view(len(x), KEY_HEADS, KEY_DIM),
                v.view(len(x), VALUE_HEADS, VALUE_DIM),
                *(decay, beta, rule, ids, done, int32([0, *lens]).cumsum(0).int(), lens),
            )
            assert not result[-1].any() and not mixed[-1].any(), "padding rows are zero"
            rows = iter(result)
            out |= {(r, p): next(rows) for r, a, b in step for p in range(a, b)}
        return torch.stack([out[key] for key in sorted(out)]), conv[1:4], rule[1:4]


@pytest.mark.parametrize("dtype", TYPES)
def test_convolution_and_delta_rule(dtype: torch.dtype) -> None:
    layer = Delta(dtype)
    whole = [[(r, 0, 90) for r in range(3)]]
    together = on_every_path(lambda: layer.run(whole))
    one_by_one = [[(r, 0, 90)] for r in (1, 2, 0)]
    chunked = [[(r, a, min(a + 13, 90)) for r in (2, 0, 1)] for a in range(0, 90, 13)]
    decoded = [[(r, 0, 80) for r in range(3)], *([(r, p, p + 1) for r in range(3)] for p in range(80, 90))]
    for pieces in (one_by_one, chunked, decoded):
        for ours, theirs in zip(layer.run(pieces), together, strict=True):
            assert same_bits(ours, theirs)
    expected = layer.run(whole, delta)
    for ours, theirs in zip(together, expected, strict=True):
        close(ours, theirs, torch.bfloat16 if dtype == torch.bfloat16 else torch.float32)


def test_a_row_that_writes_nothing_leaves_the_state() -> None:
    state = torch.randn(1, VALUE_HEADS, KEY_DIM, VALUE_DIM)
    before = state.clone()
    q, k = torch.randn(2, 3, KEY_HEADS, KEY_DIM).unbind(0)
    v, zeros = torch.randn(3, VALUE_HEADS, VALUE_DIM), torch.zeros(3, VALUE_HEADS)
    sequence.gated_delta_rule(q, k, v, zeros, zeros, state, int32([0]), int32([8]), int32([0, 3]), [3])
    assert same_bits(state, before)


def test_requests_without_rows_are_left_alone() -> None:
    states = torch.full((3, TAPS - 1, CHANNELS), torch.nan)
    x, weight = torch.randn(2, CHANNELS), torch.randn(CHANNELS, TAPS)
    sequence.causal_conv(x, weight, states, int32([1, 2]), int32([0, 0]), [0, 2])
    assert states[:2].isnan().all() and not states[2].isnan().any()
