"""Root-mean-square norms. Formulas: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization"."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from qanat.kernels.reference.elementwise import elementwise


def rms_norm(x: Tensor, weight: Tensor, eps: float, zero_centred: bool) -> Tensor:
    """The norm x / rms(x) * weight, or * (1 + weight) where the weights are stored around zero."""
    if zero_centred:
        return (_normalise(x, eps) * (weight.float() + 1.0)).to(x.dtype)
    return _normalise(x, eps).to(x.dtype) * weight


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, zero_centred: bool
) -> tuple[Tensor, Tensor]:
    """The norm of x + residual, and that sum; the sum is rounded first, as it is stored (rule R9)."""
    total = x + residual
    return rms_norm(total, weight, eps, zero_centred), total


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm of x times weight (not zero-centred), then times silu(gate)."""
    scaled = _normalise(x, eps).to(x.dtype) * weight
    return (scaled * elementwise(F.silu, gate.float())).to(gate.dtype)


def _normalise(x: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
