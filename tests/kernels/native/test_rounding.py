"""The native search for scales has the bits of the one in torch, on every instruction set."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qanat.kernels.native.rounding import round_groups
from qanat.quant.scale_search import int4_rows, int8_rows
from tests.kernels.native.paths import on_every_path, same_bits

NUM_ROWS = 8


def rows_of_all_kinds(num_inputs: int, seed: int, exponent: int) -> Tensor:
    """Plain ones, outliers, zeros, ties of either sign, few values, and numbers too small for an inverse."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(NUM_ROWS, num_inputs, generator=generator) * 10.0**exponent
    x[1, 0] *= 100
    x[2] = 0
    x[3] = x[3].sign()
    x[4] *= torch.rand(num_inputs, generator=generator) < 0.2
    x[5] *= 1e-30
    x[6] = (x[6] * 2).round()
    return x


def rounded(x: Tensor, importance: Tensor | None, group_size: int, is_int4: bool) -> tuple[Tensor, Tensor]:
    values = torch.empty(x.shape, dtype=torch.int8)
    scales = torch.empty(len(x), x.shape[1] // group_size)
    round_groups(x, importance, group_size, is_int4, values, scales)
    return values, scales


@given(
    seed=st.integers(0, 2**31),
    exponent=st.sampled_from([-12, -2, 0, 5]),
    is_counted=st.booleans(),
    is_bf16=st.booleans(),
    form=st.sampled_from(
        [(64, 32), (128, 64), (96, 16), (60, 20), (32, 32), (1, 0), (7, 0), (100, 0), (333, 0)]
    ),
)
@settings(max_examples=60, deadline=None)
def test_the_bits_are_those_of_torch(
    seed: int, exponent: int, is_counted: bool, is_bf16: bool, form: tuple[int, int]
) -> None:
    num_inputs, group_size = form
    x = rows_of_all_kinds(num_inputs, seed, exponent).to(torch.bfloat16 if is_bf16 else torch.float32)
    generator = torch.Generator().manual_seed(seed)
    importance = torch.rand(num_inputs, generator=generator).pow(4) if is_counted else None
    if group_size:
        expected = int4_rows(x.float(), importance, group_size)
    else:
        expected = int8_rows(x.float(), importance)
    found = on_every_path(lambda: rounded(x, importance, group_size or num_inputs, group_size > 0))
    assert same_bits(found[0], expected[0])
    assert same_bits(found[1], expected[1])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("is_int4", [True, False])
def test_what_is_not_finite_leaves_no_scale_in_its_group(value: float, is_int4: bool) -> None:
    x = torch.ones(3, 64)
    x[1, 40] = value
    scales = rounded(x, None, 32, is_int4)[1]
    assert scales.isnan().nonzero().tolist() == [[1, 1]]
