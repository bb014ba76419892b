"""Ops whose rows stand each for themselves. Types that the module does not know take the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from qanat.kernels.native.module import native
from qanat.kernels.native.tensors import NO_ROWS, RowsTuple, are_native, is_bf16, new, readable, rows
from qanat.kernels.recording import host_call
from qanat.kernels.reference import mlp as reference_mlp
from qanat.kernels.reference import moe as reference_moe
from qanat.kernels.reference import norm as reference_norm
from qanat.kernels.reference import rotary as reference_rotary

PLAIN, ADDED, GATED = range(3)


def rms_norm(x: Tensor, weight: Tensor, eps: float, zero_centred: bool) -> Tensor:
    """See `qanat.kernels.ops.rms_norm`."""
    if not are_native(x, weight) or x.dim() not in (2, 3):
        return host_call(reference_norm.rms_norm, x, weight, eps, zero_centred)
    x = readable(x)
    out = new(x.shape, x.dtype)
    _norm(PLAIN, x, NO_ROWS, weight, zero_centred, out, 0, eps)
    return out


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, zero_centred: bool
) -> tuple[Tensor, Tensor]:
    """See `qanat.kernels.ops.add_rms_norm`."""
    if not are_native(x, residual, weight) or x.dim() not in (2, 3) or x.dtype != residual.dtype:
        return host_call(reference_norm.add_rms_norm, x, residual, weight, eps, zero_centred)
    x, residual = readable(x), readable(residual)
    out, total = new(x.shape, x.dtype), new(x.shape, x.dtype)
    _norm(ADDED, x, rows(residual), weight, zero_centred, out, total.data_ptr(), eps)
    return out, total


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `qanat.kernels.ops.gated_rms_norm`."""
    if not are_native(x, gate, weight) or x.dim() not in (2, 3):
        return host_call(reference_norm.gated_rms_norm, x, gate, weight, eps)
    x, gate = readable(x), readable(gate)
    out = new(x.shape, gate.dtype)
    _norm(GATED, x, rows(gate), weight, False, out, 0, eps)
    return out


def _norm(
    kind: int,
    x: Tensor,
    other: RowsTuple,
    weight: Tensor,
    zero_centred: bool,
    out: Tensor,
    total: int,
    eps: float,
) -> None:
    weight = weight.contiguous()
    size = x.shape[-1]
    num_rows = x.numel() // size
    native().norm(
        kind,
        rows(x),
        other,
        num_rows,
        weight.data_ptr(),
        is_bf16(weight),
        zero_centred,
        out.data_ptr(),
        total,
        is_bf16(out),
        size,
        eps,
    )


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """See `qanat.kernels.ops.swiglu`."""
    if not are_native(gate, up) or gate.dim() != 2 or gate.dtype != up.dtype:
        return host_call(reference_mlp.swiglu, gate, up)
    gate, up = readable(gate), readable(up)
    out = new(gate.shape, gate.dtype)
    native().swiglu(rows(gate), rows(up), gate.shape[0], out.data_ptr(), is_bf16(out), gate.shape[1])
    return out


def rotary_rows(
    positions: Tensor,
    inverse_frequencies: Tensor,
    mrope_section: tuple[int, int, int] | None,
    scale: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """See `qanat.kernels.ops.rotary_rows`."""
    if positions.device.type != "cpu" or dtype not in (torch.float32, torch.bfloat16):
        return host_call(
            reference_rotary.rotary_rows, positions, inverse_frequencies, mrope_section, scale, dtype
        )
    positions, frequencies = positions.to(torch.int64).contiguous(), inverse_frequencies.float().contiguous()
    num_axes, num_rows = positions.shape
    half = frequencies.shape[0]
    sections = list(mrope_section) if mrope_section is not None and num_axes == 3 else []
    cos, sin = new((num_rows, half), dtype), new((num_rows, half), dtype)
    native().rotary_rows(
        positions.data_ptr(),
        num_axes,
        num_rows,
        frequencies.data_ptr(),
        half,
        sections,
        scale,
        cos.data_ptr(),
        sin.data_ptr(),
        dtype == torch.bfloat16,
    )
    return cos, sin


def moe_route(router_logits: Tensor, top_k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    """See `qanat.kernels.ops.moe_route`."""
    if not are_native(router_logits) or top_k > router_logits.shape[1]:
        return host_call(reference_moe.moe_route, router_logits, top_k, renormalise)
    scores = readable(router_logits)
    num_rows, num_experts = scores.shape
    weights = new((num_rows, top_k), torch.float32)
    ids = new((num_rows, top_k), torch.int64)
    native().route(
        rows(scores), num_rows, weights.data_ptr(), ids.data_ptr(), num_experts, top_k, renormalise
    )
    return weights, ids


def moe_combine(
    expert_out: Tensor, weights: Tensor, shared: Tensor | None, shared_gate: Tensor | None
) -> Tensor:
    """See `qanat.kernels.ops.moe_combine`."""
    others = [x for x in (shared, shared_gate) if x is not None]
    is_uniform = are_native(expert_out) and all(x.dtype == expert_out.dtype for x in others)
    if not is_uniform or len(others) == 1:
        return host_call(reference_moe.moe_combine, expert_out, weights, shared, shared_gate)
    expert_out, weights = expert_out.contiguous(), weights.float().contiguous()
    others = [x.contiguous() for x in others]
    shared_at, gate_at = (x.data_ptr() for x in others) if others else (0, 0)
    num_rows, top_k, size = expert_out.shape
    out = new((num_rows, size), expert_out.dtype)
    native().combine(
        expert_out.data_ptr(),
        is_bf16(expert_out),
        weights.data_ptr(),
        shared_at,
        gate_at,
        out.data_ptr(),
        num_rows,
        size,
        top_k,
    )
    return out
