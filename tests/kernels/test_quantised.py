"""The reference of quantised products against plain arithmetic."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.kernels import ops
from qanat.kernels.quantised import Int4Matrix, Int8Matrix, StaticScale
from qanat.kernels.reference import quantised


def int8_matrix(num_outputs: int, num_inputs: int) -> Int8Matrix:
    values = torch.randint(-128, 128, (num_outputs, num_inputs), dtype=torch.int8)
    return Int8Matrix(values, torch.rand(num_outputs) * 0.01)


def int4_matrix(num_outputs: int, num_inputs: int, group_size: int) -> Int4Matrix:
    values = torch.randint(-8, 8, (num_outputs, num_inputs), dtype=torch.int8)
    return Int4Matrix(values, torch.rand(num_outputs, num_inputs // group_size) * 0.1, group_size)


@pytest.mark.parametrize(
    ("num_inputs", "length"), [(1, 4), (32, 4), (33, 8), (1024, 128), (3584, 448), (1000, 128)]
)
def test_segments_of_int8_are_multiples_of_four(num_inputs: int, length: int) -> None:
    assert int8_matrix(1, num_inputs).inputs_per_segment == length


@pytest.mark.parametrize(
    ("num_inputs", "group_size", "length", "cell"),
    [(1024, 32, 128, 32), (3584, 128, 448, 64), (2048, 128, 256, 128), (96, 16, 16, 16), (256, 32, 32, 32)],
)
def test_a_cell_of_int4_lies_in_one_segment_and_one_group(
    num_inputs: int, group_size: int, length: int, cell: int
) -> None:
    matrix = int4_matrix(1, num_inputs, group_size)
    assert (matrix.inputs_per_segment, matrix.inputs_per_cell) == (length, cell)
    assert length % cell == 0 and group_size % cell == 0


@pytest.mark.parametrize(
    "matrix", [int8_matrix(40, 520), int4_matrix(40, 512, 32), int4_matrix(24, 768, 128)]
)
def test_products_are_near_those_of_the_dequantised_matrix(matrix: Int8Matrix | Int4Matrix) -> None:
    x = torch.randn(9, matrix.shape[1])
    exact = x @ matrix.dequantised().t()
    error = (ops.logits(x, matrix) - exact).abs().max() / exact.abs().max()
    assert error < 0.02
    assert ops.linear(x.bfloat16(), matrix).dtype == torch.bfloat16


@pytest.mark.parametrize("matrix", [int8_matrix(40, 520), int4_matrix(40, 512, 32)])
def test_a_row_has_the_same_bits_alone_and_among_others(matrix: Int8Matrix | Int4Matrix) -> None:
    x = torch.randn(37, matrix.shape[1])
    assert torch.equal(torch.cat([ops.logits(row, matrix) for row in x.split(1)]), ops.logits(x, matrix))


def test_a_long_segment_is_summed_exactly() -> None:
    """Sums that fp32 could not hold: 2^14 inputs of the largest product."""
    num_inputs = 8 * 16_388
    matrix = Int8Matrix(torch.full((1, num_inputs), -128, dtype=torch.int8), torch.ones(1), StaticScale(1.0))
    x = torch.full((1, num_inputs), -128.0)
    assert quantised.wide_product(x, matrix).item() == num_inputs * 128 * 128


def test_static_activations_are_cut_off_and_shifted() -> None:
    matrix = Int8Matrix(
        torch.eye(4, dtype=torch.int8), torch.ones(4), StaticScale(0.5, 10.0), torch.arange(4.0)
    )
    found = quantised.wide_product(torch.tensor([[1.0, -200.0, 200.0, 0.25]]), matrix)
    assert found.tolist() == [[0.5 * 12, 0.5 * -128 + 1, 0.5 * 127 + 2, 0.5 * 10 + 3]]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    a=st.integers(-32512, 32512),
    b=st.floats(width=32, min_value=-1.0, max_value=1.0, allow_subnormal=False),
    c=st.one_of(
        st.floats(width=32, min_value=-100.0, max_value=100.0, allow_subnormal=False),
        st.integers(-(2**24), 2**24).map(lambda n: n * 2.0**-30),
    ),
)
def test_fused_is_rounded_once(a: int, b: float, c: float) -> None:
    product = Fraction(a) * Fraction(b) + Fraction(torch.tensor(c).item())
    found = quantised.fused(torch.tensor(float(a)), torch.tensor(b), torch.tensor(c)).item()
    below, above = (
        torch.nextafter(torch.tensor(found), torch.tensor(to)).item() for to in (-torch.inf, torch.inf)
    )
    error = abs(Fraction(found) - product)
    assert error <= abs(Fraction(below) - product) and error <= abs(Fraction(above) - product)


def test_fused_where_rounding_twice_would_be_wrong() -> None:
    """The sum lies a little below the middle of two fp32 numbers, by less than fp64 can hold."""
    a, b, c = torch.tensor(1 + 2.0**-15), torch.tensor(2.0**-24 * (1 - 2.0**-15)), torch.tensor(1 + 2.0**-23)
    assert Fraction(a.item()) * Fraction(b.item()) < Fraction(1, 2**24)
    assert (a.double() * b.double() + c.double()).float().item() == 1 + 2.0**-22
    assert quantised.fused(a, b, c).item() == c.item()


def test_experts_and_tables_of_both_kinds() -> None:
    for make in (int8_matrix, lambda rows, columns: int4_matrix(rows, columns, 32)):
        experts = [make(64, 96) for _ in range(3)], [make(96, 32) for _ in range(3)]
        gate_up, down = (_stack(stack) for stack in experts)
        x, ids = torch.randn(5, 96), torch.tensor([[0, 2], [1, 0], [2, 1], [0, 1], [2, 0]])
        found = ops.moe_experts(x, ids, gate_up, down)
        gate, up = ops.linear(x[3:4], experts[0][1]).chunk(2, -1)
        assert torch.equal(found[3, 1], ops.linear(ops.swiglu(gate, up), experts[1][1])[0])
        table = make(10, 64)
        assert torch.equal(
            ops.embedding(torch.tensor([7, 0]), table, torch.bfloat16),
            table.dequantised()[[7, 0]].bfloat16(),
        )


def _stack(experts: list[Int8Matrix] | list[Int4Matrix]) -> Int8Matrix | Int4Matrix:
    values = torch.stack([expert.values for expert in experts])
    scales = torch.stack([expert.scales for expert in experts])
    first = experts[0]
    return Int8Matrix(values, scales) if isinstance(first, Int8Matrix) else Int4Matrix(values, scales, 32)
