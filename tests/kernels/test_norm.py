from __future__ import annotations

import pytest
import torch

from qanat.kernels import ops

EPS = 1e-6


def exact(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    return wide / (wide.pow(2).sum(-1, keepdim=True) / x.shape[-1] + EPS).sqrt() * weight.double()


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_plain_and_zero_centred(dtype: torch.dtype, bound: float) -> None:
    x, weight = (torch.randn(5, 3, 24) * 4).to(dtype), torch.randn(24).to(dtype)
    plain = ops.rms_norm(x, weight, EPS, False)
    centred = ops.rms_norm(x, weight, EPS, True)
    assert plain.dtype == centred.dtype == dtype
    torch.testing.assert_close(plain.double(), exact(x, weight), rtol=bound, atol=bound)
    torch.testing.assert_close(centred.double(), exact(x, 1 + weight.double()), rtol=bound, atol=bound)


def test_zero_weight_means_one_where_zero_centred() -> None:
    x = torch.randn(4, 16)
    assert torch.equal(
        ops.rms_norm(x, torch.zeros(16), EPS, True), ops.rms_norm(x, torch.ones(16), EPS, False)
    )
    assert ops.rms_norm(x, torch.zeros(16), EPS, False).abs().max() == 0


def test_zero_row_stays_zero() -> None:
    assert ops.rms_norm(torch.zeros(2, 8), torch.ones(8), EPS, False).abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_residual_is_rounded_before_the_norm_reads_it(dtype: torch.dtype) -> None:
    x, residual, weight = torch.randn(6, 32).to(dtype), (torch.randn(6, 32) * 9).to(dtype), torch.randn(32)
    normed, total = ops.add_rms_norm(x, residual, weight.to(dtype), EPS, True)
    assert torch.equal(total, x + residual)
    assert torch.equal(normed, ops.rms_norm(total, weight.to(dtype), EPS, True))


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_gated(dtype: torch.dtype, bound: float) -> None:
    x, gate = torch.randn(3, 4, 16).to(dtype), (torch.randn(3, 4, 16) * 3).to(dtype)
    weight = torch.randn(16).to(dtype)
    wide = gate.double()
    expected = exact(x, weight) * wide / (1 + (-wide).exp())
    torch.testing.assert_close(
        ops.gated_rms_norm(x, gate, weight, EPS).double(), expected, rtol=bound, atol=bound
    )
