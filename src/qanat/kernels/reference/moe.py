"""Mixture of experts in three ops: route, experts, combine."""

from __future__ import annotations

import torch
from torch import Tensor

from qanat.kernels.quantised import QuantisedMatrix
from qanat.kernels.reference.elementwise import elementwise
from qanat.kernels.reference.mlp import linear, swiglu
from qanat.kernels.rows import SharedExpert


def moe_route(logits: Tensor, top_k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    """Softmax over all experts, then the best k, ordered by probability and then by id (rule R11)."""
    probabilities = torch.softmax(logits.float(), -1)
    # A stable descending sort keeps the lower id first among equals; torch.topk promises no order.
    ordered, ids = torch.sort(probabilities, dim=-1, descending=True, stable=True)
    weights = ordered[:, :top_k]
    if renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights, ids[:, :top_k].contiguous()


def moe_experts(
    x: Tensor, ids: Tensor, gate_up: Tensor | QuantisedMatrix, down: Tensor | QuantisedMatrix
) -> Tensor:
    """Each chosen expert once, over all the rows that chose it; experts that nobody chose are not read."""
    num_rows, top_k = ids.shape
    out = x.new_empty(num_rows * top_k, x.shape[1])
    expert_of_slot, slots = torch.sort(ids.flatten(), stable=True)
    experts, counts = torch.unique_consecutive(expert_of_slot, return_counts=True)
    start = 0
    for expert, count in zip(experts.tolist(), counts.tolist(), strict=True):
        own = slots[start : start + count]
        gate, up = linear(x.index_select(0, own // top_k), _expert(gate_up, expert)).chunk(2, -1)
        out.index_copy_(0, own, linear(swiglu(gate, up), _expert(down, expert)))
        start += count
    return out.view(num_rows, top_k, -1)


def _expert(stack: Tensor | QuantisedMatrix, index: int) -> Tensor | QuantisedMatrix:
    return stack[index] if isinstance(stack, Tensor) else stack.expert(index)


def moe_combine(
    expert_out: Tensor, weights: Tensor, shared: Tensor | None, shared_gate: Tensor | None
) -> Tensor:
    """Weighted sum in the row's top-k order, then the shared expert times its sigmoid gate."""
    weighted = expert_out * weights.to(expert_out.dtype).unsqueeze(-1)
    total = weighted[:, 0].float()
    for slot in range(1, expert_out.shape[1]):
        total = total + weighted[:, slot]
    routed = total.to(expert_out.dtype)
    if shared is None or shared_gate is None:
        return routed
    return routed + elementwise(torch.sigmoid, shared_gate) * shared


def moe_mixture(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    gate_up: Tensor | QuantisedMatrix,
    down: Tensor | QuantisedMatrix,
    shared: SharedExpert | None,
) -> Tensor:
    """Routed and shared experts, and their sum."""
    routed = moe_experts(x, ids, gate_up, down)
    if shared is None:
        return moe_combine(routed, weights, None, None)
    own = linear(swiglu(shared.gate, shared.up), shared.down)
    return moe_combine(routed, weights, own, shared.scale)
