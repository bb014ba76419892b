from __future__ import annotations

import pytest
import torch

from qanat.kernels import ops
from qanat.kernels.reference import mlp, products
from qanat.kernels.row_padding import padded_rows


def test_embedding_copies_rows() -> None:
    table = torch.randn(9, 4).bfloat16()
    assert torch.equal(ops.embedding(torch.tensor([8, 0, 8]), table), table[[8, 0, 8]])


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_linear(dtype: torch.dtype, bound: float) -> None:
    x, weight = torch.randn(5, 30).to(dtype), torch.randn(7, 30).to(dtype)
    out = ops.linear(x, weight)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), x.double() @ weight.double().T, rtol=bound, atol=bound * 5)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_swiglu(dtype: torch.dtype, bound: float) -> None:
    gate, up = (torch.randn(2, 6, 10) * 4).to(dtype).unbind(0)
    wide = gate.double()
    expected = wide / (1 + (-wide).exp()) * up.double()
    torch.testing.assert_close(ops.swiglu(gate, up).double(), expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tile_bytes", [1, 256, 2**20])
def test_logits_are_never_rounded(
    dtype: torch.dtype, tile_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Narrow inputs, fp32 result: a rounded one would be off by up to 4e-3 of its size."""
    monkeypatch.setattr(products, "TILE_BYTES", tile_bytes)
    hidden, weight = torch.randn(3, 16).to(dtype), torch.randn(37, 16).to(dtype)
    out = ops.logits(hidden, weight)
    assert out.dtype == torch.float32
    assert out.is_contiguous()
    torch.testing.assert_close(out.double(), hidden.double() @ weight.double().T, rtol=1e-5, atol=1e-5)


def test_logits_of_no_rows() -> None:
    assert ops.logits(torch.zeros(0, 8).bfloat16(), torch.zeros(5, 8).bfloat16()).shape == (0, 5)


def test_few_numbers_of_rows_reach_the_library() -> None:
    assert len({padded_rows(n) for n in range(1, 257)}) == 15
    assert all(n <= padded_rows(n) <= 1.5 * n for n in range(2, 257))
    assert [padded_rows(n) for n in (257, 512, 513)] == [512, 512, 768]


def test_rows_that_are_added_change_nothing_in_the_others() -> None:
    weight = torch.randn(24, 16).bfloat16()
    for num_rows in (1, 2, 5, 7, 13, 300):
        x = torch.randn(num_rows, 16).bfloat16()
        out = mlp.linear(x, weight)
        assert out.shape == (num_rows, 24)
        torch.testing.assert_close(out.double(), x.double() @ weight.double().t(), rtol=1e-2, atol=5e-2)
