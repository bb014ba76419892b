"""Root-mean-square norms."""

from __future__ import annotations

from torch import Tensor, nn

from qanat.kernels import ops
from qanat.kernels.rows import RowFormat, Rows
from qanat.quant.parameter import ParameterFactory, ParameterInfo


class RMSNorm(nn.Module):
    """Norm over the last axis.

    Args:
        size: length of that axis.
        eps: added to the mean square.
        zero_centred: the stored weight w stands for 1 + w (Qwen3.5), not for itself (Qwen3).
    """

    def __init__(self, size: int, eps: float, zero_centred: bool, factory: ParameterFactory) -> None:
        """Registers `weight` [size]."""
        super().__init__()
        self.eps = eps
        self.zero_centred = zero_centred
        self.weight = factory.make((size,), ParameterInfo(dummy_mean=float(not zero_centred), dummy_std=0.05))

    def forward(self, x: Tensor) -> Tensor:
        """The norm of x."""
        return ops.rms_norm(x, self.weight, self.eps, self.zero_centred)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Both (norm of x + residual, x + residual)."""
        return ops.add_rms_norm(x, residual, self.weight, self.eps, self.zero_centred)

    def shared(self, x: Tensor, form: RowFormat | None) -> Rows:
        """The norm of x for several products, quantised in the format that most of them read."""
        normed = self(x)
        return normed if form is None else ops.share_rows(normed, form)

    def add_shared(self, x: Tensor, residual: Tensor, form: RowFormat | None) -> tuple[Rows, Tensor]:
        """The same of `add`."""
        if form is None:
            return self.add(x, residual)
        return ops.shared_add_rms_norm(x, residual, self.weight, self.eps, self.zero_centred, form)


class GatedRMSNorm(nn.Module):
    """Norm over the last axis, times silu of a gate; its weight is stored as it is used."""

    def __init__(self, size: int, eps: float, factory: ParameterFactory) -> None:
        """Registers `weight` [size]."""
        super().__init__()
        self.eps = eps
        self.weight = factory.make((size,), ParameterInfo(dummy_mean=1.0, dummy_std=0.05))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        """The norm of x, gated; in the gate's type."""
        return ops.gated_rms_norm(x, gate, self.weight, self.eps)

    def shared(self, x: Tensor, gate: Tensor, form: RowFormat | None) -> Rows:
        """The heads of each row behind each other, x and gate [T, H, D] -> [T, H D], for products of this format."""
        if form is None:
            return self(x, gate).flatten(1)
        return ops.shared_gated_rms_norm(x, gate, self.weight, self.eps, form)
