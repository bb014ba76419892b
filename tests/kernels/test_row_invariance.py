"""Rule R1: a row's bits depend on its own sequence and position, on nothing that is computed beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from qanat.kernels.ops import linear, logits, paged_attention
from qanat.kernels.reference.delta import gated_delta_rule
from qanat.kernels.reference.elementwise import elementwise
from qanat.kernels.reference.heads import store_heads
from qanat.kernels.registry import all_ops

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


@pytest.fixture(params=[1, 3], ids="threads={}".format)
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def cancelling(num_rows: int, num_outputs: int, num_inputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Products whose exact value is zero: all that is left is what their order of summation makes of it."""
    half = torch.randn(num_outputs, num_inputs // 2)
    again = torch.randn(num_rows, num_inputs // 2)
    return torch.cat((again, again), 1).to(dtype), torch.cat((half, -half), 1).to(dtype)


def test_every_reference_says_so() -> None:
    assert [op.name for op in all_ops() if not op.chosen.row_invariant] == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("num_outputs", "num_inputs"),
    [
        (8, 128),
        (64, 40),
        (40, 64),
        (128, 128),
        (512, 128),
        (256, 384),
        (256, 512),
        (64, 1024),
        (32, 2048),
    ],
)
@pytest.mark.parametrize("product", [linear, logits])
def test_a_row_of_a_product_is_the_same_in_any_company(
    product: Callable[[Tensor, Tensor], Tensor],
    num_outputs: int,
    num_inputs: int,
    dtype: torch.dtype,
    num_threads: int,
) -> None:
    torch.manual_seed(0)
    x, weight = cancelling(300, num_outputs, num_inputs, dtype)
    whole = product(x, weight)
    for start, stop in ((0, 1), (299, 300), (5, 7), (7, 12), (1, 18), (30, 63), (3, 103), (40, 300)):
        assert torch.equal(product(x[start:stop], weight), whole[start:stop]), (start, stop)


def test_so_is_that_of_a_single_gate(num_threads: int) -> None:
    x, weight = cancelling(300, 1, 128, torch.bfloat16)
    whole = linear(x, weight)
    for start, stop in ((0, 1), (5, 7), (40, 300)):
        assert torch.equal(linear(x[start:stop], weight), whole[start:stop]), (start, stop)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", [torch.exp, torch.sigmoid, torch.cos, F.silu, F.softplus])
def test_a_number_is_the_same_in_any_company(
    function: Callable[[Tensor], Tensor], dtype: torch.dtype, num_threads: int
) -> None:
    torch.manual_seed(0)
    x = torch.randn(100_003).to(dtype)
    whole = elementwise(function, x)
    torch.testing.assert_close(whole, function(x))
    for start, stop in ((0, 1), (1, 8), (40, 103), (1000, 1064), (3, 40_001), (99_999, 100_003)):
        assert torch.equal(elementwise(function, x[start:stop]), whole[start:stop]), (start, stop)


def test_numbers_keep_their_places() -> None:
    x = torch.randn(5, 3, 7).transpose(0, 2)
    assert torch.equal(elementwise(torch.neg, x), -x)
    assert elementwise(torch.neg, torch.zeros(0, 4)).shape == (0, 4)
    assert elementwise(torch.neg, x).numel() == math.prod(x.shape)


@pytest.mark.parametrize("head_dim", [16, 64, 256])
@pytest.mark.parametrize("num_heads", [2, 6])
def test_a_row_attends_the_same_alone_and_in_its_prompt(
    head_dim: int, num_heads: int, num_threads: int
) -> None:
    """Over several chunks of keys; single rows of two sequences together, and the last rows of one."""
    torch.manual_seed(0)
    length, block_size, num_kv_heads = 600, 16, 2
    num_blocks = -(-length // block_size)
    q = torch.randn(length, num_heads, head_dim).bfloat16() * 3
    k, v = torch.randn(2, length, num_kv_heads, head_dim).bfloat16().unbind(0)
    cache = torch.full((2, num_blocks, block_size, num_kv_heads, head_dim), torch.nan, dtype=torch.bfloat16)
    table = torch.randperm(num_blocks).unsqueeze(0)
    positions = torch.arange(length)
    slots = table[0, positions // block_size] * block_size + positions % block_size

    def rows(*picked: range) -> Tensor:
        own = torch.tensor([position for one in picked for position in one])
        tables, lens, ends = table.expand(len(picked), -1), [*map(len, picked)], [one.stop for one in picked]
        store_heads(cache, k[own], v[own], slots[own])
        return paged_attention(q[own], None, cache, tables, lens, ends, head_dim**-0.5)

    whole = rows(range(length))
    for position in (0, 1, 15, 16, 255, 256, 257, 400, 511, 512, 599):
        assert torch.equal(rows(range(position, position + 1))[0], whole[position]), position
    assert torch.equal(rows(range(30, 31), range(500, 501), range(255, 256)), whole[[30, 500, 255]])
    assert torch.equal(rows(range(250, 262), range(599, 600)), whole[[*range(250, 262), 599]])
    assert torch.equal(rows(range(200, 600)), whole[200:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("num_key_heads", "num_value_heads"), [(1, 1), (1, 2), (2, 4)])
def test_a_sequence_passes_the_delta_rule_the_same_alone_cut_and_in_company(
    num_key_heads: int, num_value_heads: int, dtype: torch.dtype, num_threads: int
) -> None:
    """One head is what a rank of a narrow model has."""
    torch.manual_seed(0)
    length, size = 40, 64
    q, k = torch.randn(2, length, num_key_heads, size).to(dtype).unbind(0)
    v = torch.randn(length, num_value_heads, size).to(dtype)
    log_decay, beta = -torch.rand(length, num_value_heads) / 10, torch.rand(length, num_value_heads)

    def pass_through(states: Tensor, rows: slice, num_copies: int) -> Tensor:
        """Results of the first of so many equal requests."""
        given = [
            each[rows].repeat(num_copies, 1, *[1] * (each.dim() - 2)) for each in (q, k, v, log_decay, beta)
        ]
        num_rows = len(range(*rows.indices(length)))
        ids, done = torch.arange(num_copies), torch.full((num_copies,), rows.start)
        starts = torch.arange(num_copies + 1) * num_rows
        return gated_delta_rule(*given, states, ids, done, starts, [num_rows] * num_copies)[:num_rows]

    alone, company, cut = torch.zeros(3, 3, num_value_heads, size, size).unbind(0)
    whole = pass_through(alone, slice(0, length), 1)
    assert torch.equal(pass_through(company, slice(0, length), 3), whole)
    pieces = [pass_through(cut, slice(start, start + 1), 1 + start % 2) for start in range(length)]
    assert torch.equal(torch.cat(pieces), whole)
    assert torch.equal(company[0], alone[0]) and torch.equal(cut[0], alone[0])
