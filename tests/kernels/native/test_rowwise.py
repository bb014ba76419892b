from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from qanat.kernels.native import module, rowwise
from qanat.kernels.reference import mlp, moe, norm, rotary
from tests.kernels.native.paths import TYPES, close, on_every_path, same_bits

FUNCTIONS = (torch.exp, torch.sigmoid, torch.nn.functional.silu, torch.nn.functional.softplus)


def run_function(which: int, x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    module.native().functions(which, x.data_ptr(), out.data_ptr(), x.numel())
    return out


@pytest.mark.parametrize("which", range(4))
def test_own_functions(which: int) -> None:
    x = torch.cat((torch.linspace(-85, 85, 20_001), torch.randn(1000) * 1e-3, torch.tensor([0.0, -0.0])))
    (found,) = on_every_path(lambda: (run_function(which, x),))
    exact = FUNCTIONS[which](x.double())
    error = (found.double() - exact).abs() / exact.abs().clamp_min(1e-300)
    assert error.max() < 4 * 2**-23


def test_own_functions_at_the_edges() -> None:
    inf = float("inf")
    x = torch.tensor([-inf, -105.0, -103.0, -88.0, 0.0, 88.7, 89.0, inf, float("nan")])
    (found,) = on_every_path(lambda: (run_function(0, x),))
    exact = torch.exp(x)
    torch.testing.assert_close(found, exact, equal_nan=True, rtol=1e-6, atol=2e-45)
    sigmoid, softplus = run_function(1, x), run_function(3, x)
    assert sigmoid[0] == 0 and sigmoid[7] == 1 and sigmoid[8].isnan()
    assert softplus[0] == 0 and softplus[7] == inf and softplus[8].isnan()


def test_comparisons_take_the_second_operand_where_one_is_not_a_number() -> None:
    x = torch.tensor([float("nan"), -0.0, -1.0, 1.0])
    at_least, at_most, peak = on_every_path(lambda: tuple(run_function(which, x) for which in (4, 5, 6)))
    assert at_least.tolist() == [0, 0, 0, 1] and not at_least[1].signbit()
    assert at_most.tolist() == [0, 0, -1, 0] and not at_most[1].signbit()
    assert peak.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(9, 128), (5, 3, 64), (4, 20), (70, 300)])
@pytest.mark.parametrize("zero_centred", [False, True])
def test_norms(shape: tuple[int, ...], dtype: torch.dtype, zero_centred: bool) -> None:
    x, other = torch.randn(2, *shape).to(dtype).unbind(0)
    weight = torch.randn(shape[-1]).to(dtype)
    plain, added, total, gated = on_every_path(
        lambda: (
            rowwise.rms_norm(x, weight, 1e-6, zero_centred),
            *rowwise.add_rms_norm(x, other, weight, 1e-6, zero_centred),
            rowwise.gated_rms_norm(x, other, weight, 1e-6),
        )
    )
    assert same_bits(rowwise.rms_norm(x[2:3], weight, 1e-6, zero_centred), plain[2:3])
    assert same_bits(total, x + other)
    assert same_bits(added, rowwise.rms_norm(total, weight, 1e-6, zero_centred))
    close(plain, norm.rms_norm(x, weight, 1e-6, zero_centred), dtype)
    close(gated, norm.gated_rms_norm(x, other, weight, 1e-6), dtype)


def test_heads_of_a_wider_tensor_are_read_in_place() -> None:
    """The query half of a doubled projection."""
    pairs = torch.randn(6, 4, 128)
    query, gate = pairs.chunk(2, -1)
    weight = torch.randn(64)
    expected = rowwise.gated_rms_norm(query.contiguous(), gate.contiguous(), weight, 1e-6)
    assert same_bits(rowwise.gated_rms_norm(query, gate, weight, 1e-6), expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_swiglu(dtype: torch.dtype) -> None:
    gate, up = torch.randn(2, 33, 50).to(dtype).unbind(0)
    (found,) = on_every_path(lambda: (rowwise.swiglu(gate, up),))
    close(found, mlp.swiglu(gate, up), dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("num_axes", "section"), [(1, None), (3, (3, 3, 2)), (3, (11, 11, 10))])
def test_rotary_rows(dtype: torch.dtype, num_axes: int, section: tuple[int, int, int] | None) -> None:
    half = sum(section) if section else 8
    positions = torch.cat((torch.arange(40), torch.tensor([1000, 65_537, 262_143]))).repeat(num_axes, 1)
    positions[num_axes - 1] += 3
    frequencies = 1e4 ** -(torch.arange(half) / half)
    cos, sin = on_every_path(lambda: rowwise.rotary_rows(positions, frequencies, section, 1.0, dtype))
    expected = rotary.rotary_rows(positions, frequencies, section, 1.0, dtype)
    close(cos, expected[0], dtype)
    close(sin, expected[1], dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("renormalise", [False, True])
def test_route(dtype: torch.dtype, renormalise: bool) -> None:
    scores = torch.randn(50, 24).to(dtype)
    scores[7] = 1.0  # equal values: the lower id first
    weights, ids = on_every_path(lambda: rowwise.moe_route(scores, 5, renormalise))
    expected = moe.moe_route(scores, 5, renormalise)
    assert ids[7].tolist() == [0, 1, 2, 3, 4]
    torch.testing.assert_close(weights, expected[0], rtol=1e-5, atol=1e-6)
    assert torch.equal(ids, expected[1])


def test_scores_that_are_not_numbers_choose_experts_that_exist() -> None:
    _, ids = rowwise.moe_route(torch.full((2, 8), torch.nan), 3, True)
    assert ((ids >= 0) & (ids < 8)).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("has_shared", [False, True])
def test_combine(dtype: torch.dtype, has_shared: bool) -> None:
    expert_out, weights = torch.randn(11, 4, 50).to(dtype), torch.rand(11, 4)
    shared = torch.randn(11, 50).to(dtype) if has_shared else None
    gate = torch.randn(11, 1).to(dtype) if has_shared else None
    combine: Callable[[], tuple[Tensor]] = lambda: (rowwise.moe_combine(expert_out, weights, shared, gate),)  # noqa: E731
    (found,) = on_every_path(combine)
    close(found, moe.moe_combine(expert_out, weights, shared, gate), dtype)
