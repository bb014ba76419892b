from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from qanat.kernels import ops
from qanat.kernels.reference import attention
from qanat.kernels.reference.heads import store_heads

HEADS, KV_HEADS, DIM = 6, 2, 16


class Cache:
    """A paged cache whose blocks are handed out in a scrambled order; NaN where nothing was written."""

    def __init__(self, block_size: int, num_blocks: int, dtype: torch.dtype = torch.float32) -> None:
        self.block_size = block_size
        self.kv = torch.full((2, num_blocks, block_size, KV_HEADS, DIM), torch.nan, dtype=dtype)
        order = torch.randperm(num_blocks - 1, generator=torch.Generator().manual_seed(1)) + 1
        self.free = order.tolist()
        self.tables: list[list[int]] = []

    def slots(self, request: int, start: int, stop: int) -> list[int]:
        while len(self.tables) <= request:
            self.tables.append([])
        table = self.tables[request]
        while len(table) * self.block_size < stop:
            table.append(self.free.pop())
        return [
            table[p // self.block_size] * self.block_size + p % self.block_size for p in range(start, stop)
        ]

    def block_tables(self) -> Tensor:
        width = max(len(table) for table in self.tables)
        return torch.tensor([table + [0] * (width - len(table)) for table in self.tables])


def attend(
    cache: Cache,
    qkv: tuple[Tensor, Tensor, Tensor],
    query_lens: Sequence[int],
    seq_lens: Sequence[int],
    gate: Tensor | None = None,
) -> Tensor:
    slots: list[int] = []
    for request, (query_len, seq_len) in enumerate(zip(query_lens, seq_lens, strict=True)):
        slots += cache.slots(request, seq_len - query_len, seq_len)
    q, k, v = qkv
    store_heads(cache.kv, k[: len(slots)], v[: len(slots)], torch.tensor(slots, dtype=torch.int64))
    return ops.paged_attention(q, gate, cache.kv, cache.block_tables(), query_lens, seq_lens, DIM**-0.5)


def exact(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One sequence, causal, every row and head on its own, in fp64."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    for row in range(len(q)):
        for head in range(HEADS):
            own = head // (HEADS // KV_HEADS)
            scores = k[: row + 1, own].double() @ q[row, head].double() * DIM**-0.5
            weights = (scores - scores.max()).exp()
            out[row, head] = weights @ v[: row + 1, own].double() / weights.sum()
    return out


def random_qkv(num_rows: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(num_rows, HEADS, DIM, generator=generator)
    k, v = torch.randn(2, num_rows, KV_HEADS, DIM, generator=generator).unbind(0)
    return q * 3, k, v


@pytest.mark.parametrize("block_size", [1, 4, 64])
def test_one_prompt(block_size: int) -> None:
    qkv = random_qkv(70)
    out = attend(Cache(block_size, 75), qkv, [70], [70])
    torch.testing.assert_close(out.double(), exact(*qkv), rtol=1e-5, atol=1e-5)


def test_more_keys_than_a_chunk() -> None:
    length = attention.KEYS_PER_CHUNK + 137
    qkv = random_qkv(length)
    out = attend(Cache(64, 12), qkv, [length], [length])
    torch.testing.assert_close(out.double(), exact(*qkv), rtol=1e-5, atol=1e-5)


def test_more_rows_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    qkv = random_qkv(100)
    expected = attend(Cache(16, 12), qkv, [100], [100])
    monkeypatch.setattr(attention, "MAX_SCRATCH_BYTES", 2**19)
    assert attention._rows_at_once(HEADS, DIM, attention.KEYS_PER_CHUNK) < 100
    out = attend(Cache(16, 12), qkv, [100], [100])
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)


def test_ragged_batch_with_cached_prefixes_and_padding() -> None:
    lengths, cached = [37, 1, 20, 64], [0, 0, 19, 50]
    whole = [random_qkv(length, seed) for seed, length in enumerate(lengths)]
    cache = Cache(16, 20)
    q, k, v = (torch.cat([one[i][:done] for one, done in zip(whole, cached, strict=True)]) for i in range(3))
    attend(cache, (q, k, v), cached, cached)
    query_lens = [length - done for length, done in zip(lengths, cached, strict=True)]
    q, k, v = (torch.cat([one[i][done:] for one, done in zip(whole, cached, strict=True)]) for i in range(3))
    q, k, v = (torch.cat((part, torch.full((5, *part.shape[1:]), torch.nan))) for part in (q, k, v))
    out = attend(cache, (q, k, v), query_lens, lengths)
    assert torch.equal(out[-5:], torch.zeros(5, HEADS, DIM))
    expected = torch.cat([exact(*one)[done:] for one, done in zip(whole, cached, strict=True)])
    torch.testing.assert_close(out[:-5].double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.isnan(cache.kv[:, 0]).all()  # the reserved block


def test_gate() -> None:
    qkv, gate = random_qkv(9), torch.randn(9, HEADS, DIM)
    plain = attend(Cache(4, 5), qkv, [9], [9])
    gated = attend(Cache(4, 5), qkv, [9], [9], gate)
    torch.testing.assert_close(gated, plain / (1 + (-gate).exp()))


def test_stores_first_then_reads_what_was_stored() -> None:
    """Rule R9: a narrower cache changes the very step that writes it, not only later ones."""
    q, k, v = random_qkv(12)
    narrow = attend(Cache(4, 5, torch.bfloat16), (q, k, v), [12], [12])
    rounded = attend(Cache(4, 5), (q, k.bfloat16().float(), v.bfloat16().float()), [12], [12])
    wide = attend(Cache(4, 5), (q, k, v), [12], [12])
    assert torch.equal(narrow, rounded)
    assert not torch.equal(narrow, wide)


def test_requests_without_rows_are_left_alone() -> None:
    qkv, cache = random_qkv(6), Cache(4, 8)
    cache.slots(0, 0, 5)
    out = attend(cache, qkv, [0, 6], [5, 6])
    torch.testing.assert_close(out.double(), exact(*qkv), rtol=1e-5, atol=1e-5)
    assert torch.isnan(cache.kv[:, cache.tables[0]]).all()


LONG = """
import resource, torch
from qanat.kernels import ops
torch.set_num_threads(1)
num_heads, num_rows, num_keys, block_size = {num_heads}, {num_rows}, {num_keys}, 64
kv = torch.zeros(2, num_keys // block_size, block_size, 1, 32, dtype=torch.bfloat16)
q = torch.randn(num_rows, num_heads, 32).bfloat16()
def run(seq_len):
    table = torch.arange(num_keys // block_size).unsqueeze(0)
    ops.paged_attention(q, None, kv, table, [num_rows], [seq_len], 0.1)
run(num_rows)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(num_keys)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize(("num_heads", "num_rows", "num_keys"), [(8, 1, 262_144), (64, 100, 16_384)])
def test_scratch_is_bounded(num_heads: int, num_rows: int, num_keys: int) -> None:
    """The longest window; and more rows than a chunk, whose scores would take 420 MB at once."""
    script = LONG.format(num_heads=num_heads, num_rows=num_rows, num_keys=num_keys)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < attention.MAX_SCRATCH_BYTES
