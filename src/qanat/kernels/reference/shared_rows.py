"""Ops whose result several products read: the plain op, and nothing quantised beside it.

The reference's products quantise for themselves, which gives the same bits.
"""

from __future__ import annotations

from torch import Tensor

from qanat.kernels.reference import mlp, norm
from qanat.kernels.rows import RowFormat, SharedRows


def share_rows(x: Tensor, form: RowFormat) -> SharedRows:
    """The rows themselves."""
    return SharedRows(x, form, None)


def shared_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, zero_centred: bool, form: RowFormat
) -> tuple[SharedRows, Tensor]:
    """The norm of x + residual, and that sum."""
    out, total = norm.add_rms_norm(x, residual, weight, eps, zero_centred)
    return share_rows(out, form), total


def shared_gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float, form: RowFormat) -> SharedRows:
    """The gated norm of each head; the heads of a row behind each other."""
    return share_rows(norm.gated_rms_norm(x, gate, weight, eps).flatten(1), form)


def shared_swiglu(gate: Tensor, up: Tensor, form: RowFormat) -> SharedRows:
    """The gated unit."""
    return share_rows(mlp.swiglu(gate, up), form)
