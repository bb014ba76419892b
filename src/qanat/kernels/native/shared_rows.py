"""Ops whose result several products read: the result and, in the same call, its rows as int8."""

from __future__ import annotations

import torch
from torch import Tensor

from qanat.kernels.native import rowwise
from qanat.kernels.native.module import native
from qanat.kernels.native.tensors import are_native, is_bf16, new, readable, rows
from qanat.kernels.rows import RowFormat, SharedRows


def share_rows(x: Tensor, form: RowFormat) -> SharedRows:
    """See `qanat.kernels.ops.share_rows`."""
    if not are_native(x):
        return SharedRows(x, form, None)
    x = readable(x)
    memory = _memory(x.shape[0], form)
    native().quantise(rows(x), x.shape[0], form, memory.data_ptr())
    return SharedRows(x, form, memory)


def shared_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, zero_centred: bool, form: RowFormat
) -> tuple[SharedRows, Tensor]:
    """See `qanat.kernels.ops.shared_add_rms_norm`."""
    if not are_native(x, residual, weight) or x.dim() != 2 or x.dtype != residual.dtype:
        out, total = rowwise.add_rms_norm(x, residual, weight, eps, zero_centred)
        return share_rows(out, form), total
    x, residual, weight = readable(x), readable(residual), weight.contiguous()
    out, total = new(x.shape, x.dtype), new(x.shape, x.dtype)
    memory = _memory(x.shape[0], form)
    native().quantised_norm(
        False,
        rows(x),
        rows(residual),
        x.shape[0],
        weight.data_ptr(),
        is_bf16(weight),
        zero_centred,
        out.data_ptr(),
        total.data_ptr(),
        is_bf16(out),
        x.shape[1],
        eps,
        form,
        memory.data_ptr(),
    )
    return SharedRows(out, form, memory), total


def shared_gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float, form: RowFormat) -> SharedRows:
    """See `qanat.kernels.ops.shared_gated_rms_norm`."""
    if not are_native(x, gate, weight) or x.dim() != 3:
        return share_rows(rowwise.gated_rms_norm(x, gate, weight, eps).flatten(1), form)
    x, gate, weight = readable(x), readable(gate), weight.contiguous()
    num_rows, num_heads, size = x.shape
    out, memory = new((num_rows, num_heads * size), gate.dtype), _memory(num_rows, form)
    native().quantised_norm(
        True,
        rows(x),
        rows(gate),
        num_rows,
        weight.data_ptr(),
        is_bf16(weight),
        False,
        out.data_ptr(),
        0,
        is_bf16(out),
        size,
        eps,
        form,
        memory.data_ptr(),
    )
    return SharedRows(out, form, memory)


def shared_swiglu(gate: Tensor, up: Tensor, form: RowFormat) -> SharedRows:
    """See `qanat.kernels.ops.shared_swiglu`."""
    if not are_native(gate, up) or gate.dim() != 2 or gate.dtype != up.dtype:
        return share_rows(rowwise.swiglu(gate, up), form)
    gate, up = readable(gate), readable(up)
    num_rows, size = gate.shape
    out, memory = new(gate.shape, gate.dtype), _memory(num_rows, form)
    native().quantised_swiglu(
        rows(gate), rows(up), num_rows, out.data_ptr(), is_bf16(out), size, form, memory.data_ptr()
    )
    return SharedRows(out, form, memory)


def _memory(num_rows: int, form: RowFormat) -> Tensor:
    return new((native().quantised_bytes(form, num_rows),), torch.uint8)
