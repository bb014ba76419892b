from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qanat.kernels import ops
from qanat.kernels.native import experts, module, products
from qanat.kernels.native.packed import PackedWeight
from qanat.kernels.reference import mlp, moe
from tests.kernels.native.paths import THREADS, TYPES, close, on_every_path, same_bits

SHAPES = [(1, 128, 64), (7, 96, 70), (65, 264, 40), (13, 100, 1), (3, 5, 33)]  # rows, inputs, outputs


def matrix(num_outputs: int, num_inputs: int, dtype: torch.dtype) -> Tensor:
    return (torch.randn(num_outputs, num_inputs) * num_inputs**-0.5).to(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("num_rows", "num_inputs", "num_outputs"), SHAPES)
def test_a_row_has_the_same_bits_alone_and_among_others(
    num_rows: int, num_inputs: int, num_outputs: int, dtype: torch.dtype
) -> None:
    weight = matrix(num_outputs, num_inputs, dtype)
    x = torch.randn(num_rows, num_inputs).to(dtype)
    packed = products.pack_matrix(weight)
    together, scores = on_every_path(lambda: (products.linear(x, packed), products.logits(x, packed)))
    for cut in (1, 2, 6, 11):
        parts = [products.logits(part, packed) for part in x.split(cut)]
        assert same_bits(torch.cat(parts), scores)
    close(together, mlp.linear(x, weight), dtype)
    torch.testing.assert_close(scores, mlp.logits(x, weight), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_sum_is_eight_segments_joined_by_a_tree(dtype: torch.dtype) -> None:
    """Two ranks that hold a half of the inputs each have the two branches of the same tree (rule R12)."""
    num_inputs, num_outputs = 256, 48
    weight, x = matrix(num_outputs, num_inputs, dtype), torch.randn(5, num_inputs).to(dtype)
    segments = []
    for start in range(0, num_inputs, 32):
        sums = torch.zeros(5, num_outputs, dtype=torch.float64)
        for k in range(start, start + 32):
            exact = x[:, k : k + 1].double() * weight[:, k].double() + sums  # fused: rounded once, to fp32
            sums = exact.float().double()
        segments.append(sums.float())
    s = segments
    expected = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
    found = products.logits(x, products.pack_matrix(weight))
    if (
        dtype == torch.bfloat16
    ):  # products of bf16 are exact in fp64, and so are their sums: no rounding but the one
        assert same_bits(found, expected)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("num_ranks", [2, 4, 8])
@pytest.mark.parametrize("num_rows", [1, 2, 4, 9])
def test_shards_of_the_inputs_hold_branches_of_the_whole_matrixs_tree(
    num_rows: int, num_ranks: int, dtype: torch.dtype
) -> None:
    num_inputs, num_outputs = 8 * 21, 40
    weight, x = matrix(num_outputs, num_inputs, dtype), torch.randn(num_rows, num_inputs).to(dtype)
    shards = [
        products.pack_matrix(part.contiguous(), segment_length=21) for part in weight.chunk(num_ranks, 1)
    ]
    for shard, part in zip(shards, weight.chunk(num_ranks, 1), strict=True):
        assert isinstance(shard, PackedWeight) and same_bits(shard.unpacked(), part)  # type: ignore[arg-type]
    assert sum(shard.nbytes for shard in shards) == products.pack_matrix(weight).nbytes  # type: ignore[union-attr]
    parts = x.chunk(num_ranks, 1)
    sums = on_every_path(lambda: [products.logits(p, s) for p, s in zip(parts, shards, strict=True)])
    while len(sums) > 1:
        sums = [left + right for left, right in zip(sums[::2], sums[1::2], strict=True)]
    assert same_bits(sums[0], products.logits(x, products.pack_matrix(weight)))


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_of_a_packed_table(dtype: torch.dtype) -> None:
    table = matrix(70, 100, dtype)
    packed = products.pack_matrix(table)
    assert same_bits(products.embedding(torch.arange(70), packed), table)
    with pytest.raises(IndexError, match="70 rows"):
        products.embedding(torch.tensor([70]), packed)


def test_a_view_is_packed_as_what_it_shows() -> None:
    wide = torch.randn(40, 64)
    x = torch.randn(3, 32)
    for view in (wide[:, :32], wide.t()[:32].t(), wide[::2, :32]):
        expected = products.linear(x, products.pack_matrix(view.contiguous()))
        assert same_bits(products.linear(x, products.pack_matrix(view)), expected)


def test_activations_need_not_be_contiguous() -> None:
    packed = products.pack_matrix(torch.randn(20, 32))
    wide = torch.randn(6, 64)
    for view in (wide[:, 32:], wide[::2, :32], torch.randn(32, 6).t()):
        assert same_bits(products.linear(view, packed), products.linear(view.contiguous(), packed))


def test_types_that_are_not_covered_take_the_reference() -> None:
    weight, x = torch.randn(8, 16).half(), torch.randn(2, 16).half()
    assert products.pack_matrix(weight) is weight
    assert torch.equal(products.linear(x, weight), mlp.linear(x, weight))


@pytest.mark.parametrize("dtype", TYPES)
def test_experts(dtype: torch.dtype) -> None:
    num_experts, hidden, inner, num_rows, top_k = 6, 48, 20, 37, 2
    gate_up = torch.stack([matrix(2 * inner, hidden, dtype) for _ in range(num_experts)])
    down = torch.stack([matrix(hidden, inner, dtype) for _ in range(num_experts)])
    x = torch.randn(num_rows, hidden).to(dtype)
    ids = torch.rand(num_rows, num_experts - 1).argsort(1)[:, :top_k].contiguous()  # one expert has no rows
    packed = products.pack_experts(gate_up), products.pack_experts(down)
    (together,) = on_every_path(lambda: (experts.moe_experts(x, ids, *packed),))
    alone = [experts.moe_experts(x[i : i + 1], ids[i : i + 1], *packed) for i in range(num_rows)]
    assert same_bits(torch.cat(alone), together)
    close(together, moe.moe_experts(x, ids, gate_up, down), dtype)


def test_many_short_jobs_meet_without_losing_one() -> None:
    """Threads that have parked in the meantime come back, and nothing is computed twice or left out."""
    weight, x = torch.randn(512, 256), torch.randn(1, 256)
    packed = products.pack_matrix(weight)
    expected = products.linear(x, packed)
    for num_threads in (*THREADS, 16):
        module.configure(num_threads)
        assert module.native().num_threads() == num_threads
        assert all(same_bits(products.linear(x, packed), expected) for _ in range(200))


@pytest.mark.parametrize("dtype", TYPES)
def test_providers_that_did_not_pack_a_weight_read_it_all_the_same(dtype: torch.dtype) -> None:
    weight, x = matrix(40, 24, dtype), torch.randn(3, 24).to(dtype)
    stack = torch.stack([matrix(24, 24, dtype) for _ in range(2)])
    assert ops.linear.chosen.name == "reference"
    assert torch.equal(ops.linear(x, products.pack_matrix(weight)), ops.linear(x, weight))
    assert torch.equal(ops.logits(x, products.pack_matrix(weight)), ops.logits(x, weight))
    assert same_bits(products.pack_experts(stack).unpacked(), stack)
