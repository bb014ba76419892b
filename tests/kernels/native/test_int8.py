"""W8A8 products: every path has the bits of the reference."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qanat.kernels import ops
from qanat.kernels.native import module, products
from qanat.kernels.native.packed import PackedWeight, pack, packed_bytes
from qanat.kernels.providers import stored_bytes
from qanat.kernels.quantised import Int8Matrix, StaticScale
from qanat.kernels.reference import quantised as reference
from tests.kernels.native.paths import TYPES, bytes_of, found_by_experts, on_every_quantised_path, same_bits

EXTREMES = (-128, -127, 0, 127)


def matrix(
    num_outputs: int,
    num_inputs: int,
    *,
    static: StaticScale | None = None,
    has_bias: bool = False,
    segment_length: int = 0,
) -> Int8Matrix:
    values = torch.randint(-128, 128, (num_outputs, num_inputs), dtype=torch.int8)
    scales = torch.rand(num_outputs) * 0.01
    bias = torch.randn(num_outputs) if has_bias else None
    return Int8Matrix(values, scales, static, bias, segment_length)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    num_rows=st.integers(1, 80),
    num_inputs=st.one_of(st.integers(1, 300), st.sampled_from([512, 1024, 1536, 2112])),
    num_outputs=st.integers(1, 100),
    is_static=st.booleans(),
    has_bias=st.booleans(),
    dtype=st.sampled_from(TYPES),
    seed=st.integers(0, 1000),
)
def test_every_path_has_the_bits_of_the_reference(
    num_rows: int,
    num_inputs: int,
    num_outputs: int,
    is_static: bool,
    has_bias: bool,
    dtype: torch.dtype,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    static = StaticScale(0.02, 3.0) if is_static else None
    given_matrix = matrix(num_outputs, num_inputs, static=static, has_bias=has_bias)
    packed = products.pack_matrix(given_matrix)
    x = (torch.randn(num_rows, num_inputs) * 2).to(dtype)
    found = on_every_quantised_path(lambda: (products.linear(x, packed), products.logits(x, packed)))
    assert same_bits(found[0], reference.linear(x, given_matrix))
    assert same_bits(found[1], reference.wide_product(x, given_matrix))


@pytest.mark.parametrize(
    ("num_inputs", "num_segments"),
    [(100, 1), (64, 1), (2368, 1), (128, 2), (192, 3), (256, 4), (320, 5), (512, 8)],
)
@pytest.mark.parametrize(("num_rows", "num_outputs"), [(9, 16), (40, 33), (420, 40)])
def test_any_number_of_segments(num_inputs: int, num_segments: int, num_rows: int, num_outputs: int) -> None:
    """A row of one scale, and what ranks hold of a row of eight; more rows than any buffer of a kernel holds."""
    segment_length = -(-num_inputs // num_segments)
    given_matrix = matrix(num_outputs, num_inputs, has_bias=num_rows == 9, segment_length=segment_length)
    packed = products.pack_matrix(given_matrix)
    for dtype in TYPES:
        x = torch.randn(num_rows, num_inputs).to(dtype)
        (found,) = on_every_quantised_path(lambda: (products.linear(x, packed),))  # noqa: B023 - called at once
        assert same_bits(found, reference.linear(x, given_matrix))


def test_a_sum_below_zero_that_vanishes_has_the_sign_of_the_tree() -> None:
    """Segments that are not there count as zero, so that a product of minus zero is plus zero on every path."""
    given_matrix = Int8Matrix(
        torch.full((16, 64), -1, dtype=torch.int8), torch.full((16,), 1e-45), segment_length=64
    )
    x = torch.full((9, 64), 1e-3)
    (found,) = on_every_quantised_path(lambda: (products.logits(x, pack(given_matrix)),))
    assert not found.any() and not found.signbit().any()


@pytest.mark.parametrize("num_inputs", [64, 520])
def test_a_row_has_the_same_bits_alone_and_among_others(num_inputs: int) -> None:
    packed = products.pack_matrix(matrix(70, num_inputs))
    x = torch.randn(131, num_inputs)

    def parts_and_whole() -> list[Tensor]:
        cuts = [
            torch.cat([products.logits(part, packed) for part in x.split(cut)])
            for cut in (1, 2, 3, 7, 17, 33)
        ]
        whole = products.logits(x, packed)
        assert all(same_bits(cut, whole) for cut in cuts)
        return [whole]

    on_every_quantised_path(parts_and_whole)


@pytest.mark.parametrize("num_rows", [1, 2, 5, 16, 40])
def test_extreme_pairs_are_exact_on_every_quantised_path(num_rows: int) -> None:
    """Rule R5: each of these activations meets each of these weights, alone and in sums of equal pairs."""
    num_inputs = 8 * 64
    pairs = list(itertools.product(EXTREMES, EXTREMES))
    weights = torch.tensor([pair[1] for pair in pairs], dtype=torch.int8).unsqueeze(1).expand(-1, num_inputs)
    mixed = torch.tensor(EXTREMES, dtype=torch.int8).repeat(num_inputs // 4).unsqueeze(0)
    given_matrix = Int8Matrix(
        torch.cat([weights, mixed]).contiguous(), torch.ones(len(pairs) + 1), StaticScale(1.0)
    )
    packed = products.pack_matrix(given_matrix)
    for activation in EXTREMES:
        x = torch.full((num_rows, num_inputs), float(activation))
        exact = (x.double() @ given_matrix.values.double().t()).float()
        (found,) = on_every_quantised_path(lambda: (products.logits(x, packed),))  # noqa: B023 - called at once
        assert torch.equal(found, exact)
        assert same_bits(found, reference.wide_product(x, given_matrix))


@pytest.mark.parametrize("static", [None, StaticScale(0.1, 1.0)])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_row_that_is_not_finite_gives_nan_and_harms_no_other(
    bad: float, static: StaticScale | None
) -> None:
    given_matrix = matrix(33, 100, static=static)
    packed = products.pack_matrix(given_matrix)
    x = torch.randn(5, 100)
    expected = reference.wide_product(x, given_matrix)
    broken = x.clone()
    broken[2, 77] = bad
    (found,) = on_every_quantised_path(lambda: (products.logits(broken, packed),))
    assert found[2].isnan().all() and reference.wide_product(broken, given_matrix)[2].isnan().all()
    others = [0, 1, 3, 4]
    assert same_bits(found[others], expected[others])


@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-38, 3e38])
def test_very_small_and_very_large_rows(size: float) -> None:
    given_matrix = matrix(20, 64)
    packed = products.pack_matrix(given_matrix)
    x = torch.randn(3, 64).clamp(-1, 1) * size
    (found,) = on_every_quantised_path(lambda: (products.logits(x, packed),))
    assert same_bits(found, reference.wide_product(x, given_matrix))


def test_halves_of_the_inputs_hold_branches_of_the_tree() -> None:
    """Rule R12: two shards, each with the whole matrix's segments, add up to the whole product's bits."""
    whole, x = matrix(40, 500), torch.randn(6, 500)
    length = whole.inputs_per_segment
    total = products.logits(x, pack(whole))
    for cut in (4 * length, 2 * length, 6 * length):
        shards = [
            (x[:, part], Int8Matrix(whole.values[:, part], whole.scales, segment_length=length))
            for part in (slice(0, cut), slice(cut, None))
        ]
        found = [products.logits(own, pack(shard)) for own, shard in shards]
        assert all(
            same_bits(one, reference.wide_product(*shard)) for one, shard in zip(found, shards, strict=True)
        )
        if cut == 4 * length:
            assert same_bits(found[0] + found[1], total)
    assert pack(shards[1][1]).size_bytes < pack(whole).size_bytes


def test_rows_of_a_table() -> None:
    table = matrix(70, 101)
    packed = products.pack_matrix(table)
    ids = torch.tensor([0, 69, 16, 16, 33])
    for dtype in (*TYPES, torch.float16):
        (found,) = on_every_quantised_path(lambda: (products.embedding(ids, packed, dtype),))  # noqa: B023 - called at once
        assert same_bits(found, table.dequantised()[ids].to(dtype))
        assert same_bits(found, reference.embedding(ids, table, dtype))
    with pytest.raises(IndexError, match="70 rows"):
        products.embedding(torch.tensor([70]), packed)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("num_rows", "num_experts", "top_k"), [(1, 8, 4), (37, 6, 2), (200, 4, 3)])
def test_experts_are_products_of_each_row_on_its_own(
    num_rows: int, num_experts: int, top_k: int, dtype: torch.dtype
) -> None:
    hidden, inner = 72, 40
    gate_up = _stack([matrix(2 * inner, hidden) for _ in range(num_experts)])
    down = _stack([matrix(hidden, inner) for _ in range(num_experts)])
    x = torch.randn(num_rows, hidden).to(dtype)
    ids = torch.rand(num_rows, num_experts - 1).argsort(1)[:, :top_k].contiguous()
    found = found_by_experts(x, ids, gate_up, down)
    with_reference = ops.moe_experts.reference.function(x, ids, gate_up, down)
    torch.testing.assert_close(
        found.float(), with_reference.float(), rtol=0.05, atol=0.05 * float(found.abs().max())
    )


def _stack(experts: list[Int8Matrix]) -> Int8Matrix:
    return Int8Matrix(
        torch.stack([expert.values for expert in experts]), torch.stack([expert.scales for expert in experts])
    )


@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8", "stack", "static"])
def test_mapped_memory_is_as_good_as_packed(kind: str) -> None:
    weight = {
        "fp32": torch.randn(37, 100),
        "bf16": torch.randn(37, 100).bfloat16(),
        "int8": matrix(37, 100, has_bias=True),
        "stack": _stack([matrix(37, 100), matrix(37, 100)]),
        "static": matrix(37, 100, static=StaticScale(0.03, -2.0)),
    }[kind]
    packed = pack(weight)
    assert packed.size_bytes == packed.nbytes == packed_bytes(weight) == stored_bytes(weight)
    memory = torch.empty(packed.size_bytes + 64, dtype=torch.uint8)
    aligned = memory[-memory.data_ptr() % 64 :][: packed.size_bytes]
    aligned.copy_(bytes_of(packed))
    again = PackedWeight.mapped(packed.header(), aligned.data_ptr(), memory)
    assert again.shape == packed.shape == weight.shape and again.header() == packed.header()
    assert again.address == aligned.data_ptr()
    x = torch.randn(3, 100)
    if kind == "stack":
        assert same_bits(again.unpacked().values, weight.values)
    else:
        assert same_bits(products.logits(x, again), products.logits(x, packed))


def test_packed_memory_is_the_same_on_every_instruction_set() -> None:
    weight = matrix(50, 77, has_bias=True)
    on_every_quantised_path(lambda: (bytes_of(pack(weight)),))


@pytest.mark.parametrize("static", [None, StaticScale(0.5, 7.0)])
def test_packed_matrices_can_be_read_by_any_provider(static: StaticScale | None) -> None:
    weight, x = matrix(40, 30, static=static, has_bias=True), torch.randn(3, 30)
    packed = pack(weight)
    assert same_bits(packed.unpacked().values, weight.values)
    assert same_bits(ops.linear.reference.function(x, packed), products.linear(x, packed))


def test_activations_of_a_type_that_is_not_covered_are_widened() -> None:
    weight, x = matrix(40, 30), torch.randn(3, 30).half()
    assert same_bits(products.linear(x, pack(weight)), reference.linear(x, weight))


def test_the_module_names_its_instruction_sets_worst_first() -> None:
    order = ["scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "amx"]
    found = module.instruction_sets()
    assert found == [name for name in order if name in found] or "neon" in found
