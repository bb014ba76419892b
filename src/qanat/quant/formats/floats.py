"""Matrices that a quantised checkpoint leaves as they are, beside quantised ones of the same layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from qanat.quant.cut import Along, MatrixCut, Registrar
from qanat.quant.parameter import ParameterFactory


@dataclass(frozen=True)
class FloatMatrix:
    """A `MatrixFormat` of one float tensor, `weight` [out, in]."""

    name: str = "FLOAT"
    note: str = ""

    def create(self, owner: nn.Module, cut: MatrixCut, factory: ParameterFactory) -> None:
        """Registers `weight`."""
        shape = (cut.num_outputs, cut.num_inputs)
        Registrar(owner, cut, factory).add("weight", shape, factory.dtype, outputs=Along(0), inputs=Along(1))

    def matrix(self, owner: nn.Module, cut: MatrixCut) -> Tensor:
        """The tensor itself."""
        weight: Tensor = owner.weight  # type: ignore[assignment]
        return weight.detach()

    def outline(self, cut: MatrixCut, dtype: torch.dtype) -> Tensor:
        """The same without values."""
        return torch.empty(cut.own_shape, dtype=dtype, device="meta")

    def needs_whole_rows(self, cut: MatrixCut) -> bool:
        """See `MatrixFormat.needs_whole_rows`."""
        return False
