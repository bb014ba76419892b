"""Microscaling formats (OCP): groups of 32 small floats along the inputs share a power of two."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from qanat.kernels.quantised import Int8Matrix
from qanat.quant.convert import int8_outline, requantised
from qanat.quant.cut import Along, MatrixCut, Registrar, parameter_of
from qanat.quant.formats.nibbles import exponent_scales, fp4_values, low_and_high
from qanat.quant.parameter import ParameterFactory

GROUP_SIZE = 32

NOTE = (
    "microscaled floats become int8 with one scale an output, which is rounded anew (error at most 1/254 of the "
    "output's largest weight); activations become int8, too"
)


@dataclass(frozen=True)
class MxFloats:
    """`weight` as E4M3 [out, in], or as E2M1 [out, in / 2] with the even input in the low half; exponents beside it.

    Formula: weight = value * 2 ** (exponent - 127).

    Attributes:
        name, note: see `MatrixFormat`.
        is_four_bit: E2M1.
        weight_name: of the values.
    """

    name: str
    note: str = NOTE
    is_four_bit: bool = False
    weight_name: str = "weight"

    def create(self, owner: nn.Module, cut: MatrixCut, factory: ParameterFactory) -> None:
        """Registers the tensors."""
        add = Registrar(owner, cut, factory).add
        per_byte = 2 if self.is_four_bit else 1
        shape = (cut.num_outputs, cut.num_inputs // per_byte)
        along = Along(1, per_byte, is_packed=True)
        dtype = torch.uint8 if self.is_four_bit else torch.float8_e4m3fn
        add(self.weight_name, shape, dtype, outputs=Along(0), inputs=along)
        scales = (cut.num_outputs, -(-cut.num_inputs // GROUP_SIZE))
        add("weight_scale", scales, torch.uint8, outputs=Along(0), inputs=Along(1, GROUP_SIZE))

    def matrix(self, owner: nn.Module, cut: MatrixCut) -> Int8Matrix:
        """Rounded anew to int8."""
        weight, exponents = parameter_of(owner, self.weight_name), parameter_of(owner, "weight_scale")
        groups = cut.positions(1, GROUP_SIZE) // GROUP_SIZE

        def dequantised(rows: slice) -> Tensor:
            part = weight[rows].detach()
            values = fp4_values(low_and_high(part, 1)) if self.is_four_bit else part.float()
            return values * exponent_scales(exponents[rows].detach())[:, groups]

        return requantised(cut, dequantised, exponents)

    def outline(self, cut: MatrixCut, dtype: torch.dtype) -> Int8Matrix:
        """See `MatrixFormat.outline`."""
        return int8_outline(cut)

    def needs_whole_rows(self, cut: MatrixCut) -> bool:
        """See `MatrixFormat.needs_whole_rows`."""
        return True
