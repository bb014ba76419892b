"""Products with packed matrices. A weight that was not packed (another type, another device) takes the reference."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from qanat.kernels.native.module import native
from qanat.kernels.native.packed import PackedExperts, PackedWeight, pack
from qanat.kernels.native.tensors import are_native, is_bf16, new, readable, rows
from qanat.kernels.reference import mlp as reference
from qanat.kernels.reference import moe as reference_moe

Weight: TypeAlias = Tensor | PackedWeight
Experts: TypeAlias = Tensor | PackedExperts


def pack_matrix(weight: Tensor) -> Weight:
    """See `qanat.kernels.ops.pack_matrix`."""
    return pack(weight) if are_native(weight) else weight


def pack_experts(weight: Tensor) -> Experts:
    """See `qanat.kernels.ops.pack_experts`."""
    return PackedExperts(tuple(pack(expert) for expert in weight)) if are_native(weight) else weight


def linear(x: Tensor, weight: Weight) -> Tensor:
    """See `qanat.kernels.ops.linear`."""
    if isinstance(weight, Tensor):
        return reference.linear(x, weight)
    return _product(x, weight, x.dtype)


def logits(hidden: Tensor, weight: Weight) -> Tensor:
    """See `qanat.kernels.ops.logits`."""
    if isinstance(weight, Tensor):
        return reference.logits(hidden, weight)
    return _product(hidden, weight, torch.float32)


def _product(x: Tensor, weight: PackedWeight, dtype: torch.dtype) -> Tensor:
    x = readable(x)
    out = new((x.shape[0], weight.shape[0]), dtype)
    native().linear(rows(x), x.shape[0], weight.matrix, out.data_ptr(), is_bf16(out))
    return out


def embedding(token_ids: Tensor, weight: Weight) -> Tensor:
    """See `qanat.kernels.ops.embedding`."""
    if isinstance(weight, Tensor):
        return reference.embedding(token_ids, weight)
    return weight.rows(token_ids.to(torch.int64).contiguous())


def moe_experts(x: Tensor, expert_ids: Tensor, gate_up: Experts, down: Experts) -> Tensor:
    """See `qanat.kernels.ops.moe_experts`."""
    if isinstance(gate_up, Tensor) or isinstance(down, Tensor):
        assert isinstance(gate_up, Tensor) and isinstance(down, Tensor), "both are packed or neither"
        return reference_moe.moe_experts(x, expert_ids, gate_up, down)
    x, ids = readable(x), expert_ids.contiguous()
    num_rows, top_k = ids.shape
    out = new((num_rows, top_k, down.experts[0].shape[0]), x.dtype)
    native().experts(
        rows(x),
        num_rows,
        ids.data_ptr(),
        top_k,
        gate_up.matrices,
        down.matrices,
        out.data_ptr(),
        is_bf16(out),
    )
    return out
