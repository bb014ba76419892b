from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.kernels import ops


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(-3, 3), min_size=6, max_size=6), min_size=1, max_size=5),
    top_k=st.integers(1, 6),
    renormalise=st.booleans(),
)
def test_route_orders_by_value_then_id(rows: list[list[int]], top_k: int, renormalise: bool) -> None:
    """Whole-number logits have many ties; Python's sort on (-value, id) says what is right (rule R11)."""
    weights, ids = ops.moe_route(torch.tensor(rows, dtype=torch.float32), top_k, renormalise)
    for row, own_weights, own_ids in zip(rows, weights, ids, strict=True):
        expected = sorted(range(6), key=lambda expert, row=row: (-row[expert], expert))[:top_k]
        assert own_ids.tolist() == expected
        values = torch.tensor(row, dtype=torch.float64).exp()
        shares = values[expected] / (values[expected].sum() if renormalise else values.sum())
        torch.testing.assert_close(own_weights.double(), shares, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_route_weights_are_fp32(dtype: torch.dtype) -> None:
    weights, ids = ops.moe_route(torch.randn(3, 8).to(dtype), 2, True)
    assert weights.dtype == torch.float32
    assert ids.dtype == torch.int64


def expert_output(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    gate, up = (gate_up.double() @ x.double()).chunk(2)
    return down.double() @ (gate / (1 + (-gate).exp()) * up)


def test_experts() -> None:
    x, ids = torch.randn(7, 12), torch.stack([torch.randperm(5)[:3] for _ in range(7)])
    gate_up, down = torch.randn(5, 2 * 10, 12), torch.randn(5, 12, 10)
    out = ops.moe_experts(x, ids, gate_up, down)
    assert out.shape == (7, 3, 12)
    for row in range(7):
        for slot, expert in enumerate(ids[row].tolist()):
            expected = expert_output(x[row], gate_up[expert], down[expert])
            torch.testing.assert_close(out[row, slot].double(), expected, rtol=1e-4, atol=1e-4)


def test_experts_that_nobody_chose_are_not_read() -> None:
    gate_up, down = torch.randn(4, 8, 6), torch.randn(4, 6, 4)
    gate_up[[0, 2]], down[[0, 2]] = torch.nan, torch.nan
    out = ops.moe_experts(torch.randn(3, 6), torch.tensor([[1, 3], [3, 1], [1, 3]]), gate_up, down)
    assert out.isfinite().all()


def test_combine_in_top_k_order_then_the_shared_expert() -> None:
    out, weights = torch.randn(5, 3, 8), torch.rand(5, 3)
    shared, gate = torch.randn(5, 8), torch.randn(5, 1)
    routed = (out.double() * weights.double().unsqueeze(-1)).sum(1)
    torch.testing.assert_close(
        ops.moe_combine(out, weights, None, None), routed.float(), rtol=1e-5, atol=1e-6
    )
    both = routed + shared.double() / (1 + (-gate.double()).exp())
    torch.testing.assert_close(
        ops.moe_combine(out, weights, shared, gate), both.float(), rtol=1e-5, atol=1e-6
    )


def test_combine_adds_in_order() -> None:
    """1e8 + 1 - 1e8 is 0 in fp32, 1e8 - 1e8 + 1 is 1: the order of the sum is the row's own."""
    weights = torch.ones(2, 3)
    out = torch.tensor([[1e8, 1.0, -1e8], [1e8, -1e8, 1.0]]).unsqueeze(-1)
    assert ops.moe_combine(out, weights, None, None).flatten().tolist() == [0.0, 1.0]
