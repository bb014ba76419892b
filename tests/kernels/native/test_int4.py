"""W4A8 products: every path has the bits of the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qanat.kernels import ops
from qanat.kernels.native import experts, products, rowwise
from qanat.kernels.native.packed import PackedWeight, is_packable, pack, packed_bytes
from qanat.kernels.providers import stored_bytes
from qanat.kernels.quantised import Int4Matrix, Int8Matrix
from qanat.kernels.reference import quantised as reference
from tests.kernels.native.paths import TYPES, bytes_of, found_by_experts, on_every_quantised_path, same_bits


def matrix(num_outputs: int, num_inputs: int, group_size: int = 32, *, is_bf16: bool = True) -> Int4Matrix:
    values = torch.randint(-8, 8, (num_outputs, num_inputs), dtype=torch.int8)
    scales = (torch.rand(num_outputs, num_inputs // group_size) - 0.3) * 0.02
    return Int4Matrix(values, scales.bfloat16().float() if is_bf16 else scales, group_size)


def stack(experts: list[Int4Matrix]) -> Int4Matrix:
    values = torch.stack([expert.values for expert in experts])
    return replace(experts[0], values=values, scales=torch.stack([expert.scales for expert in experts]))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    num_rows=st.integers(1, 40),
    group_size=st.sampled_from([16, 24, 32, 40, 64, 128, 256]),
    num_groups=st.integers(1, 9),
    num_outputs=st.integers(1, 70),
    is_bf16=st.booleans(),
    dtype=st.sampled_from(TYPES),
    seed=st.integers(0, 1000),
)
def test_every_path_has_the_bits_of_the_reference(
    num_rows: int,
    group_size: int,
    num_groups: int,
    num_outputs: int,
    is_bf16: bool,
    dtype: torch.dtype,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    given_matrix = matrix(num_outputs, num_groups * group_size, group_size, is_bf16=is_bf16)
    packed = products.pack_matrix(given_matrix)
    x = (torch.randn(num_rows, num_groups * group_size) * 2).to(dtype)
    found = on_every_quantised_path(lambda: (products.linear(x, packed), products.logits(x, packed)))
    assert same_bits(found[0], reference.linear(x, given_matrix))
    assert same_bits(found[1], reference.wide_product(x, given_matrix))


@pytest.mark.parametrize(("num_rows", "num_outputs"), [(33, 16), (70, 40)])
@pytest.mark.parametrize(("num_inputs", "segment_length"), [(256, 0), (1024, 0), (1440, 0), (512, 128)])
def test_many_rows(num_rows: int, num_outputs: int, num_inputs: int, segment_length: int) -> None:
    """More than one block of rows; segments of one cell and of many, and the half of a matrix that a rank holds."""
    given_matrix = replace(matrix(num_outputs, num_inputs), segment_length=segment_length)
    packed = products.pack_matrix(given_matrix)
    for dtype in TYPES:
        x = torch.randn(num_rows, num_inputs).to(dtype)
        (found,) = on_every_quantised_path(lambda: (products.linear(x, packed),))  # noqa: B023 - called at once
        assert same_bits(found, reference.linear(x, given_matrix))


def test_experts_with_many_rows() -> None:
    gate_up = stack([matrix(2 * 256, 256) for _ in range(2)])
    down = stack([matrix(256, 256) for _ in range(2)])
    ids = torch.rand(80, 2).argsort(1)[:, :1].contiguous()
    found_by_experts(torch.randn(80, 256), ids, gate_up, down)


@pytest.mark.parametrize(
    ("num_inputs", "group_size", "cell"),
    [(2048, 32, 32), (3584, 128, 64), (1024, 1024, 128), (4096, 256, 256), (80, 16, 16), (512, 64, 64)],
)
def test_cells_lie_in_one_group_and_one_segment(num_inputs: int, group_size: int, cell: int) -> None:
    """A row has the same bits alone and among any others, for each size of a cell."""
    given_matrix = matrix(33, num_inputs, group_size)
    assert given_matrix.inputs_per_cell == cell
    packed, x = pack(given_matrix), torch.randn(67, num_inputs)
    expected = reference.wide_product(x, given_matrix)

    def parts_and_whole() -> list[Tensor]:
        cuts = [torch.cat([products.logits(part, packed) for part in x.split(cut)]) for cut in (1, 3, 8, 19)]
        whole = products.logits(x, packed)
        assert all(same_bits(cut, whole) for cut in cuts)
        return [whole]

    (found,) = on_every_quantised_path(parts_and_whole)
    assert same_bits(found, expected)


@pytest.mark.parametrize("num_rows", [1, 2, 7, 20])
@pytest.mark.parametrize("group_size", [32, 256])
def test_extreme_values_are_exact_on_every_quantised_path(num_rows: int, group_size: int) -> None:
    """The largest sums of every sign: nothing saturates on the way."""
    num_inputs = 8 * 256
    values = torch.tensor([-8, -7, 0, 7], dtype=torch.int8).unsqueeze(1).repeat(5, num_inputs)
    values[16:, ::2] = 7
    given_matrix = Int4Matrix(values, torch.ones(20, num_inputs // group_size), group_size)
    packed = pack(given_matrix)
    for size in (-1.0, 1.0):
        x = torch.full((num_rows, num_inputs), size)
        x[:, 1::4] = -size
        x[num_rows // 2] = size
        (found,) = on_every_quantised_path(lambda: (products.logits(x, packed),))  # noqa: B023 - called at once
        assert same_bits(found, reference.wide_product(x, given_matrix))
        exact = x.double() @ values.double().t()
        torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_gives_nan_and_harms_no_other(bad: float) -> None:
    given_matrix = matrix(33, 96)
    packed, x = pack(given_matrix), torch.randn(5, 96)
    expected = reference.wide_product(x, given_matrix)
    broken = x.clone()
    broken[2, 77] = bad
    (found,) = on_every_quantised_path(lambda: (products.logits(broken, packed),))
    assert found[2].isnan().all()
    others = [0, 1, 3, 4]
    assert same_bits(found[others], expected[others])


def test_halves_of_the_inputs_hold_branches_of_the_tree() -> None:
    """Rule R12: two shards, each with the whole matrix's segments, add up to the whole product's bits."""
    whole, x = matrix(40, 512), torch.randn(6, 512)
    length = whole.inputs_per_segment
    shards = [
        (
            x[:, part],
            Int4Matrix(
                whole.values[:, part].contiguous(),
                whole.scales[:, part.start // 32 : part.stop // 32].contiguous(),
                32,
                length,
            ),
        )
        for part in (slice(0, 4 * length), slice(4 * length, 512))
    ]
    found = [products.logits(own, pack(shard)) for own, shard in shards]
    assert same_bits(found[0] + found[1], products.logits(x, pack(whole)))
    assert pack(shards[0][1]).size_bytes * 2 == pack(whole).size_bytes


@pytest.mark.parametrize("is_bf16", [False, True])
@pytest.mark.parametrize(("num_inputs", "group_size"), [(96, 32), (2048, 128), (48, 16)])
def test_rows_of_a_table_and_the_matrix_itself_come_back(
    num_inputs: int, group_size: int, is_bf16: bool
) -> None:
    table = matrix(70, num_inputs, group_size, is_bf16=is_bf16)
    packed = pack(table)
    ids = torch.tensor([0, 69, 16, 16, 33])
    for dtype in TYPES:
        (found,) = on_every_quantised_path(lambda: (products.embedding(ids, packed, dtype),))  # noqa: B023 - called at once
        assert same_bits(found, reference.embedding(ids, table, dtype))
    again = packed.unpacked()
    assert isinstance(again, Int4Matrix) and again.group_size == group_size
    assert same_bits(again.values, table.values) and same_bits(again.scales, table.scales)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("num_rows", "num_experts", "top_k"), [(1, 8, 4), (37, 6, 2), (200, 4, 3)])
def test_experts_are_products_of_each_row_on_its_own(
    num_rows: int, num_experts: int, top_k: int, dtype: torch.dtype
) -> None:
    hidden, inner = 96, 64
    gate_up = stack([matrix(2 * inner, hidden) for _ in range(num_experts)])
    down = stack([matrix(hidden, inner) for _ in range(num_experts)])
    x = torch.randn(num_rows, hidden).to(dtype)
    ids = torch.rand(num_rows, num_experts - 1).argsort(1)[:, :top_k].contiguous()
    found = found_by_experts(x, ids, gate_up, down)
    packed = products.pack_experts(gate_up), products.pack_experts(down)
    alone = [experts.moe_experts(x[i : i + 1], ids[i : i + 1], *packed) for i in range(0, num_rows, 9)]
    assert same_bits(torch.cat(alone), found[::9])


@pytest.mark.parametrize("num_rows", [1, 3, 250])
def test_experts_of_any_kinds_and_loads_are_shared_without_losing_a_panel(num_rows: int) -> None:
    """One expert has nearly all rows, and the two stacks are of different kinds."""
    num_experts, hidden, inner = 5, 160, 96
    gate_up = stack([matrix(2 * inner, hidden) for _ in range(num_experts)])
    values = torch.randint(-128, 128, (num_experts, hidden, inner), dtype=torch.int8)
    down = Int8Matrix(values, torch.rand(num_experts, hidden) * 0.01)
    x = torch.randn(num_rows, hidden)
    ids = torch.full((num_rows, 1), 3)
    ids[::40] = torch.arange(len(ids[::40])).unsqueeze(1) % num_experts
    packed = products.pack_experts(gate_up), products.pack_experts(down)
    (found,) = on_every_quantised_path(lambda: (experts.moe_experts(x, ids, *packed),))
    for expert in ids.unique().tolist():
        own = ids[:, 0] == expert
        pair = products.linear(x[own], pack(gate_up.expert(expert)))
        inside = rowwise.swiglu(*pair.chunk(2, -1))
        assert same_bits(products.linear(inside, pack(down.expert(expert))), found[own, 0])


@pytest.mark.parametrize("is_bf16", [False, True])
def test_mapped_memory_is_as_good_as_packed(is_bf16: bool) -> None:
    weight, x = matrix(37, 160, is_bf16=is_bf16), torch.randn(3, 160)
    packed = pack(weight)
    assert packed.header()["is_scale_bf16"] == is_bf16
    assert packed.size_bytes == packed.nbytes == packed_bytes(weight) == stored_bytes(weight)
    memory = torch.empty(packed.size_bytes + 64, dtype=torch.uint8)
    aligned = memory[-memory.data_ptr() % 64 :][: packed.size_bytes]
    aligned.copy_(bytes_of(packed))
    again = PackedWeight.mapped(packed.header(), aligned.data_ptr(), memory)
    assert same_bits(products.logits(x, again), products.logits(x, packed))


def test_packed_memory_is_the_same_on_every_instruction_set() -> None:
    weight = matrix(50, 160)
    on_every_quantised_path(lambda: (bytes_of(pack(weight)),))


def test_a_matrix_takes_four_and_a_half_bits_a_weight() -> None:
    """Also where only its shape is known, if its scales are bf16."""
    shape = (256, 2048)
    outline = Int4Matrix(
        torch.empty(shape, dtype=torch.int8, device="meta"),
        torch.empty(256, 64, dtype=torch.bfloat16, device="meta"),
        32,
    )
    assert stored_bytes(outline) == pack(matrix(*shape)).size_bytes == 256 * 2048 * 9 // 16
    whole = replace(outline, scales=outline.scales.float())
    assert stored_bytes(whole) == pack(matrix(*shape, is_bf16=False)).size_bytes == 256 * 2048 * 5 // 8


def test_cells_that_are_no_multiple_of_eight_are_left_to_the_reference() -> None:
    weight, x = matrix(20, 60, 20), torch.randn(3, 60)
    assert not is_packable(weight) and products.pack_matrix(weight) is weight
    assert same_bits(products.linear(x, weight), reference.linear(x, weight))
    assert stored_bytes(weight) == weight.nbytes
    stacks = stack([matrix(80, 60, 20) for _ in range(3)]), stack([matrix(60, 40, 20) for _ in range(3)])
    ids = torch.tensor([[0, 2], [1, 0], [2, 1]])
    found = experts.moe_experts(x, ids, *(products.pack_experts(one) for one in stacks))
    assert same_bits(found, ops.moe_experts.reference.function(x, ids, *stacks))
