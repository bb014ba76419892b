"""Ascend's 4-bit kinds: W4A8_DYNAMIC in all its layouts, and W4A4_DYNAMIC."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from qanat.core.errors import CheckpointError
from qanat.kernels.quantised import Int4Matrix, Int8Matrix
from qanat.quant.convert import (
    check_finite,
    check_no_offsets,
    check_scales,
    fits_int4,
    grouped_matrix,
    int4_outline,
    int8_outline,
    only_zeros,
    requantised,
    source_of,
)
from qanat.quant.cut import Along, MatrixCut, Registrar, parameter_of
from qanat.quant.formats.nibbles import low_and_high, signed_nibbles
from qanat.quant.parameter import ParameterFactory

FP32 = torch.float32
PARTS_OF_SCALE_BIAS = 16
"""Slices of the inputs that `scale_bias` of a row-parallel matrix may be given for."""


@dataclass(frozen=True)
class AscendInt4:
    """Signed 4-bit values with a scale for each output and, in older files, one for each group of inputs on top.

    Formula: weight = (value - offset) * scale, with groups value * scale_second * scale. `scale_bias` (8 times the sum
    of each output's weights) serves kernels that cut the activations in two halves; a product with whole int8
    activations must not add it.

    Attributes:
        name, note: see `MatrixFormat`.
        is_packed: a byte holds two rows of `weight`, the even one in the low half; otherwise one value.
        group_size: inputs of a group; 0: scales of outputs only.
        scale_bias_parts: columns of `scale_bias`; 0 if it is not there.
        has_group_offsets: `weight_offset_second` is there; where it is not, groups are symmetric.
    """

    name: str
    note: str = ""
    is_packed: bool = True
    group_size: int = 0
    scale_bias_parts: int = 1
    has_group_offsets: bool = True

    def create(self, owner: nn.Module, cut: MatrixCut, factory: ParameterFactory) -> None:
        """Registers the tensors."""
        add = Registrar(owner, cut, factory).add
        rows = cut.num_outputs // 2 if self.is_packed else cut.num_outputs
        along = Along(0, 2, is_packed=True) if self.is_packed else Along(0)
        add("weight", (rows, cut.num_inputs), torch.int8, outputs=along, inputs=Along(1))
        for name in ("weight_scale", "weight_offset"):
            add(name, (cut.num_outputs, 1), FP32, outputs=Along(0))
        if self.scale_bias_parts:
            add("scale_bias", (cut.num_outputs, self.scale_bias_parts), FP32, outputs=Along(0))
        if self.group_size:
            shape = (cut.num_outputs, cut.num_inputs // self.group_size)
            groups = Along(1, self.group_size)
            add("weight_scale_second", shape, FP32, outputs=Along(0), inputs=groups)
        if self.group_size and self.has_group_offsets:
            add(
                "weight_offset_second",
                shape,
                FP32,
                outputs=Along(0),
                inputs=groups,
                other_dtypes=(torch.int64, torch.int32),
            )

    def matrix(self, owner: nn.Module, cut: MatrixCut) -> Int4Matrix | Int8Matrix:
        """Exact in int4; rounded anew to int8 where outputs have offsets or groups are too small."""
        weight = parameter_of(owner, "weight")
        values = self._values(weight)
        offsets = check_finite(parameter_of(owner, "weight_offset"))
        scales = check_scales(
            parameter_of(owner, "weight_scale"), of_zeros=lambda: (values == offsets).all(1, keepdim=True)
        )
        if self.scale_bias_parts:
            check_finite(parameter_of(owner, "scale_bias"))
        group = self.group_size or cut.num_inputs
        if self.group_size:
            if self.has_group_offsets:
                check_no_offsets(parameter_of(owner, "weight_offset_second"))
            scales = self._second_scales(owner, values, cut) * scales
        if offsets.any():
            groups = cut.positions(1, group) // group
            return requantised(
                cut, lambda rows: (values[rows].float() - offsets[rows]) * scales[rows][:, groups], weight
            )
        return grouped_matrix(values, scales, group, cut, weight)

    def outline(self, cut: MatrixCut, dtype: torch.dtype) -> Int4Matrix | Int8Matrix:
        """See `MatrixFormat.outline`."""
        group = self.group_size or cut.num_inputs
        return int4_outline(cut, group) if fits_int4(cut, group) else int8_outline(cut)

    def needs_whole_rows(self, cut: MatrixCut) -> bool:
        """See `MatrixFormat.needs_whole_rows`."""
        return not fits_int4(cut, self.group_size or cut.num_inputs)

    def _values(self, weight: Tensor) -> Tensor:
        if self.is_packed:
            return signed_nibbles(low_and_high(weight, 0))
        values = weight.detach()
        if ((values < -8) | (values > 7)).any():
            raise CheckpointError(
                f"{source_of(weight)} has values outside -8..7, which four bits cannot hold"
            )
        return values

    def _second_scales(self, owner: nn.Module, values: Tensor, cut: MatrixCut) -> Tensor:
        second = parameter_of(owner, "weight_scale_second")

        def of_zeros() -> Tensor:
            groups = cut.positions(1, self.group_size) // self.group_size
            return only_zeros(values == 0, second, torch.arange(len(values)), groups)

        return check_scales(second, of_zeros=of_zeros, may_be_negative=True)
