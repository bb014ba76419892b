"""Rows that are quantised once have the bits of rows that each product quantises for itself."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qanat.kernels import ops
from qanat.kernels.native import experts, products, rowwise, shared_rows
from qanat.kernels.native.packed import PackedWeight, pack
from qanat.kernels.quantised import Int4Matrix, Int8Matrix, QuantisedMatrix, StaticScale
from qanat.kernels.reference import quantised as reference
from qanat.kernels.rows import RowFormat, SharedRows, row_format
from tests.kernels.native.paths import TYPES, on_every_quantised_path, same_bits

KINDS = ("int8", "static", "int4")


def matrix(kind: str, num_outputs: int, num_inputs: int) -> QuantisedMatrix:
    if kind == "int4":
        values = torch.randint(-8, 8, (num_outputs, num_inputs), dtype=torch.int8)
        return Int4Matrix(values, torch.rand(num_outputs, num_inputs // 8), 8)
    values = torch.randint(-128, 128, (num_outputs, num_inputs), dtype=torch.int8)
    static = StaticScale(0.03, -4.0) if kind == "static" else None
    return Int8Matrix(values, torch.rand(num_outputs), static)


def packed_and_format(kind: str, num_inputs: int) -> tuple[PackedWeight, RowFormat]:
    packed = pack(matrix(kind, 37, num_inputs))
    form = row_format(packed)
    assert form is not None
    return packed, form


def parts_of(shared: SharedRows) -> tuple[Tensor, Tensor]:
    """The numbers and scales of quantised rows, of the segments that there are."""
    form, memory, num_rows = shared.format, shared.memory, shared.shape[0]
    assert memory is not None and memory.data_ptr() % 64 == 0
    num_segments = -(-form.num_inputs // form.segment_length)
    size = num_rows * num_segments * form.segment_length
    values = memory[:size].view(torch.int8).view(num_rows, num_segments, form.segment_length)
    start = -(-size // 64) * 64
    scales = memory[start : start + num_rows * 32].view(torch.float32).view(num_rows, 8)[:, :num_segments]
    return values.clone(), scales.clone()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(KINDS),
    num_rows=st.sampled_from([1, 2, 7, 40]),
    heads=st.sampled_from([(1, 64), (3, 24), (5, 40), (8, 16), (4, 128)]),
    dtype=st.sampled_from(TYPES),
    seed=st.integers(0, 1000),
)
def test_every_op_has_the_bits_of_the_plain_one_and_of_the_reference(
    kind: str, num_rows: int, heads: tuple[int, int], dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    size = math.prod(heads)
    packed, form = packed_and_format(kind, size)
    x, other = (torch.randn(2, num_rows, size) * 2).to(dtype).unbind(0)
    weight, head_weight = torch.randn(size).to(dtype), torch.randn(heads[1]).to(dtype)
    by_head = [each.view(num_rows, *heads) for each in (x, other)]

    def run() -> list[Tensor]:
        normed, total = shared_rows.shared_add_rms_norm(x, other, weight, 1e-6, True, form)
        plain_norm, plain_total = rowwise.add_rms_norm(x, other, weight, 1e-6, True)
        gated = shared_rows.shared_gated_rms_norm(by_head[0], by_head[1], head_weight, 1e-6, form)
        found = {
            "rows": (shared_rows.share_rows(x, form), x),
            "norm": (normed, plain_norm),
            "gated": (gated, rowwise.gated_rms_norm(*by_head, head_weight, 1e-6).flatten(1)),
            "swiglu": (shared_rows.shared_swiglu(x, other, form), rowwise.swiglu(x, other)),
        }
        assert same_bits(total, plain_total)
        results = [total]
        for name, (shared, plain) in found.items():
            assert same_bits(shared.values, plain), name
            assert same_bits(products.linear(shared, packed), products.linear(plain, packed)), name
            results += [plain, *parts_of(shared)]
        return results

    results = on_every_quantised_path(run)
    static = StaticScale(form.static_scale, form.static_offset) if form.is_static else None
    for plain, values, scales in zip(results[1::3], results[2::3], results[3::3], strict=True):
        expected = reference.quantised_rows(plain.float(), form.segment_length, static)
        assert torch.equal(values.float(), expected[0]) and same_bits(scales, expected[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_bits_alone_and_among_others(kind: str) -> None:
    packed, form = packed_and_format(kind, 96)
    gate, up = torch.randn(2, 23, 96).unbind(0)
    whole = products.linear(shared_rows.shared_swiglu(gate, up, form), packed)
    for row in range(23):
        alone = shared_rows.shared_swiglu(gate[row : row + 1], up[row : row + 1], form)
        assert same_bits(products.linear(alone, packed)[0], whole[row])


def test_parts_of_wider_tensors_are_read_in_place() -> None:
    packed, form = packed_and_format("int8", 64)
    gate, up = torch.randn(5, 3, 2, 64)[:, 1].unbind(1)
    expected = rowwise.swiglu(gate.contiguous(), up.contiguous())
    shared = shared_rows.shared_swiglu(gate, up, form)
    assert same_bits(shared.values, expected)
    assert same_bits(products.linear(shared, packed), products.linear(expected, packed))
    queries, gates = torch.randn(5, 4, 32).chunk(2, -1)
    weight = torch.randn(16)
    heads = shared_rows.shared_gated_rms_norm(queries, gates, weight, 1e-6, form)
    assert same_bits(heads.values, rowwise.gated_rms_norm(queries, gates, weight, 1e-6).flatten(1))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_harms_no_other(bad: float) -> None:
    packed, form = packed_and_format("int8", 64)
    x = torch.randn(5, 64)
    expected = products.linear(x, packed)
    x[2, 3] = bad
    found = products.linear(shared_rows.share_rows(x, form), packed)
    assert found[2].isnan().all()
    others = [0, 1, 3, 4]
    assert same_bits(found[others], expected[others])


@pytest.mark.parametrize("num_rows", [1, 5, 130])
@pytest.mark.parametrize("dtype", TYPES)
def test_several_products_at_once_are_each_of_them(num_rows: int, dtype: torch.dtype) -> None:
    """Of every kind, with rows as they are and with rows in one of the formats."""
    kinds = ("int8", "int4", "static", "int8", "int4")
    quantised = [pack(matrix(kind, num_outputs, 72)) for kind, num_outputs in zip(kinds, (40, 3, 70, 16, 33))]  # noqa: B905 - equally many
    plain = [pack(torch.randn(20, 72)), pack(torch.randn(1, 72).bfloat16())]
    weights = [*quantised[:3], *plain, *quantised[3:]]
    x = torch.randn(num_rows, 72).to(dtype)

    def run() -> list[Tensor]:
        single = [products.linear(x, weight) for weight in weights]
        forms = [row_format(weight) for weight in quantised[:3]]
        for rows in (x, *(shared_rows.share_rows(x, form) for form in forms if form is not None)):
            found = products.linears(rows, weights)
            assert all(same_bits(one, other) for one, other in zip(found, single, strict=True))
        return single

    on_every_quantised_path(run)


def test_the_reference_takes_shared_rows_too() -> None:
    packed, form = packed_and_format("int8", 64)
    x = torch.randn(3, 64)
    native = products.linear(shared_rows.share_rows(x, form), packed)
    unshared = ops.share_rows.reference.function(x, form)
    for rows in (unshared, shared_rows.share_rows(x, form)):
        assert same_bits(ops.linear.reference.function(rows, packed), native)
        assert same_bits(products.linear(rows, packed), native)
        assert same_bits(ops.linears.reference.function(rows, [packed, packed])[1], native)


def test_types_that_are_not_covered_are_left_as_they_are() -> None:
    packed, form = packed_and_format("int8", 64)
    x = torch.randn(3, 64).half()
    shared = shared_rows.shared_swiglu(x, x, form)
    assert shared.memory is None and shared.dtype == torch.float16
    assert same_bits(products.linear(shared, packed), products.linear(rowwise.swiglu(x, x), packed))


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_experts_read_shared_rows(kind: str) -> None:
    gate_up, down = (_stack(kind, shape) for shape in ((80, 64), (64, 40)))
    form = row_format(gate_up)
    assert form is not None
    x, ids = torch.randn(9, 64), torch.rand(9, 5).argsort(1)[:, :2].contiguous()

    def run() -> list[Tensor]:
        found = experts.moe_experts(shared_rows.share_rows(x, form), ids, gate_up, down)
        assert same_bits(found, experts.moe_experts(x, ids, gate_up, down))
        return [found]

    on_every_quantised_path(run)


def _stack(kind: str, shape: tuple[int, int]) -> PackedWeight:
    parts = [matrix(kind, *shape) for _ in range(5)]
    values, scales = (torch.stack([getattr(part, name) for part in parts]) for name in ("values", "scales"))
    return pack(Int4Matrix(values, scales, 8) if kind == "int4" else Int8Matrix(values, scales))


def test_formats_tell_apart_what_is_read_differently() -> None:
    found = {kind: packed_and_format(kind, 64)[1] for kind in KINDS}
    assert len(set(found.values())) == 3
    assert packed_and_format("int8", 64)[1] == found["int8"] != packed_and_format("int8", 72)[1]
    assert row_format(torch.zeros(3, 3), None, pack(torch.zeros(3, 3))) is None
