"""Ascend's 8-bit kinds: W8A8 (static), W8A8_DYNAMIC, W8A8_MIX and W8A16."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from qanat.core.errors import CheckpointError
from qanat.kernels.quantised import Int8Matrix, StaticScale
from qanat.quant.convert import (
    check_finite,
    check_no_offsets,
    check_scales,
    int8_matrix,
    int8_outline,
    requantised,
    source_of,
)
from qanat.quant.cut import Along, MatrixCut, Registrar, parameter_of
from qanat.quant.parameter import ParameterFactory

INT8 = torch.int8
FP32 = torch.float32


@dataclass(frozen=True)
class AscendInt8:
    """Int8 with a scale and an offset for each output: `weight`, `weight_scale`, `weight_offset`.

    Formula: weight = (value - offset) * scale; activations in int8, their scale from each row.

    Attributes:
        name, note: see `MatrixFormat`.
        has_static: the tensors of the static kind are there too; they are checked, and not used.
        has_bias: `bias` [out] is there.
    """

    name: str
    note: str = ""
    has_static: bool = False
    has_bias: bool = False

    def create(self, owner: nn.Module, cut: MatrixCut, factory: ParameterFactory) -> None:
        """Registers the tensors."""
        add = Registrar(owner, cut, factory).add
        add("weight", (cut.num_outputs, cut.num_inputs), INT8, outputs=Along(0), inputs=Along(1))
        for name in ("weight_scale", "weight_offset"):
            add(name, (cut.num_outputs, 1), FP32, outputs=Along(0))
        if self.has_static:
            add_static(owner, cut, factory)
        if self.has_bias:
            add("bias", (cut.num_outputs,), FP32, outputs=Along(0))

    def matrix(self, owner: nn.Module, cut: MatrixCut) -> Int8Matrix:
        """Exact where all offsets are zero, as they are for symmetric weights; otherwise rounded anew."""
        weight, offsets = parameter_of(owner, "weight"), check_finite(parameter_of(owner, "weight_offset"))
        scales = check_scales(
            parameter_of(owner, "weight_scale"), of_zeros=lambda: (weight == offsets).all(1, keepdim=True)
        )
        if self.has_static:
            read_static(owner)
        if offsets.any():
            made = requantised(
                cut, lambda rows: (weight[rows].detach().float() - offsets[rows]) * scales[rows], weight
            )
        else:
            made = int8_matrix(weight, scales, cut)
        if self.has_bias and cut.is_first:
            made = dataclasses.replace(made, bias=check_finite(parameter_of(owner, "bias")))
        return made

    def outline(self, cut: MatrixCut, dtype: torch.dtype) -> Int8Matrix:
        """See `MatrixFormat.outline`."""
        return _with_bias(int8_outline(cut), self.has_bias and cut.is_first)

    def needs_whole_rows(self, cut: MatrixCut) -> bool:
        """See `MatrixFormat.needs_whole_rows`; of these kinds only W8A16 comes with offsets."""
        return self.name == "W8A16"


@dataclass(frozen=True)
class AscendStatic:
    """Int8 with fixed scales of the activations: `input_scale`, `input_offset`, `deq_scale`, `quant_bias`.

    Formula: q = clamp(round(x / input_scale + input_offset), -128, 127); y = (sum of q * weight + quant_bias) *
    deq_scale, where deq_scale is input_scale times the weight's scale. `quant_bias` holds the correction for the
    offset, and the bias where there is one.

    Attributes:
        name, note: see `MatrixFormat`.
        others: tensors that are there and not needed: the weight's own scale and offset, and the bias.
    """

    name: str = "W8A8"
    note: str = ""
    others: tuple[str, ...] = ()

    def create(self, owner: nn.Module, cut: MatrixCut, factory: ParameterFactory) -> None:
        """Registers the tensors."""
        add = Registrar(owner, cut, factory).add
        add("weight", (cut.num_outputs, cut.num_inputs), INT8, outputs=Along(0), inputs=Along(1))
        add_static(owner, cut, factory)
        for name in self.others:
            add(name, (cut.num_outputs,) if name == "bias" else (cut.num_outputs, 1), FP32, outputs=Along(0))

    def matrix(self, owner: nn.Module, cut: MatrixCut) -> Int8Matrix:
        """The correction is added by the first rank only, where ranks add their products."""
        scale, offset, deq_scale, quant_bias = read_static(owner)
        for name in self.others:
            check = check_no_offsets if name == "weight_offset" else check_finite
            check(parameter_of(owner, name))
        made = int8_matrix(parameter_of(owner, "weight"), deq_scale / scale, cut)
        bias = quant_bias.float() * deq_scale if cut.is_first else torch.zeros_like(deq_scale)
        return dataclasses.replace(made, static=StaticScale(scale, offset), bias=bias)

    def outline(self, cut: MatrixCut, dtype: torch.dtype) -> Int8Matrix:
        """See `MatrixFormat.outline`."""
        return dataclasses.replace(_with_bias(int8_outline(cut), True), static=StaticScale(1.0))

    def needs_whole_rows(self, cut: MatrixCut) -> bool:
        """See `MatrixFormat.needs_whole_rows`."""
        return False


def add_static(owner: nn.Module, cut: MatrixCut, factory: ParameterFactory) -> None:
    """Registers the tensors of fixed activation scales."""
    add = Registrar(owner, cut, factory).add
    add("input_scale", (1,), FP32)
    add("input_offset", (1,), FP32)
    add("deq_scale", (cut.num_outputs,), FP32, outputs=Along(0), other_dtypes=(torch.int64,))
    add("quant_bias", (cut.num_outputs,), torch.int32, outputs=Along(0))


def read_static(owner: nn.Module) -> tuple[float, float, Tensor, Tensor]:
    """(scale of the activations, their offset, deq_scale fp32 [out], quant_bias int32 [out]).

    Raises:
        CheckpointError: a value is impossible.
    """
    scale = check_scales(parameter_of(owner, "input_scale")).item()
    offset = check_finite(parameter_of(owner, "input_offset")).item()
    raw = parameter_of(owner, "deq_scale")
    deq_scale = raw
    if raw.dtype == torch.int64:
        # Files for fp16 hold the bits of the fp32 number in an integer.
        if ((raw < 0) | (raw >= 2**32)).any():
            raise CheckpointError(f"{source_of(raw)} holds no bit patterns of 32-bit numbers")
        deq_scale = type(raw)(raw.detach().to(torch.int32).view(FP32), raw.info, raw.source)
    weight, quant_bias = parameter_of(owner, "weight").detach(), parameter_of(owner, "quant_bias").detach()
    checked = check_scales(deq_scale, of_zeros=lambda: (weight == 0).all(1) & (quant_bias == 0))
    return scale, offset, checked, quant_bias


def _with_bias(matrix: Int8Matrix, has_bias: bool) -> Int8Matrix:
    return dataclasses.replace(matrix, bias=torch.empty_like(matrix.scales)) if has_bias else matrix
