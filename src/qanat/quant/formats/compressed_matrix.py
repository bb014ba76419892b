"""Matrices of compressed-tensors checkpoints: int8, and small whole numbers packed along the inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from qanat.core.errors import CheckpointError
from qanat.kernels.quantised import Int4Matrix, Int8Matrix, StaticScale
from qanat.quant.convert import (
    check_scales,
    fits_int4,
    grouped_matrix,
    int4_outline,
    int8_matrix,
    int8_outline,
    only_zeros,
    requantised,
    source_of,
)
from qanat.quant.cut import Along, MatrixCut, Registrar, parameter_of
from qanat.quant.formats.common import own_group
from qanat.quant.formats.nibbles import WORD_BITS, unpacked_words
from qanat.quant.parameter import ParameterFactory


@dataclass(frozen=True)
class CompressedInt8:
    """`weight` int8 [out, in] and `weight_scale` [out, 1] or of one number.

    Where the scale of the activations is fixed, `input_scale` and `input_zero_point` stand beside them.

    Formula: weight = value * scale; q = clamp(round(x / input_scale) + input_zero_point, -128, 127).

    Attributes:
        name, note: see `MatrixFormat`.
        scale_shape: of a single scale; None for one for each output.
        static_shapes: of the tensors of fixed activation scales that are there, by name.
    """

    name: str
    note: str = ""
    scale_shape: tuple[int, ...] | None = None
    static_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def create(self, owner: nn.Module, cut: MatrixCut, factory: ParameterFactory) -> None:
        """Registers the tensors."""
        add = Registrar(owner, cut, factory).add
        add("weight", (cut.num_outputs, cut.num_inputs), torch.int8, outputs=Along(0), inputs=Along(1))
        if self.scale_shape is None:
            add("weight_scale", (cut.num_outputs, 1), torch.float32, outputs=Along(0))
        else:
            add("weight_scale", self.scale_shape, torch.float32)
        for name, shape in self.static_shapes.items():
            add(name, shape, torch.float32, other_dtypes=(torch.int8, torch.int32, torch.int64))

    def matrix(self, owner: nn.Module, cut: MatrixCut) -> Int8Matrix:
        """Exact; the correction for a zero point follows from the weights."""
        weight, stored = parameter_of(owner, "weight"), parameter_of(owner, "weight_scale")

        def of_zeros() -> Tensor:
            rows = (weight == 0).all(1, keepdim=True)
            return rows if self.scale_shape is None else rows.all().view(stored.shape)

        scales = check_scales(stored, of_zeros=of_zeros)
        made = int8_matrix(weight, scales.reshape(-1).expand(cut.own_shape[0]).contiguous(), cut)
        if "input_scale" not in self.static_shapes:
            return made
        scale, offset = check_scales(parameter_of(owner, "input_scale")).item(), 0.0
        if "input_zero_point" in self.static_shapes:
            offset = float(parameter_of(owner, "input_zero_point").item())
        bias = None
        if offset:
            bias = -offset * scale * made.scales * weight.detach().sum(1, dtype=torch.int32).float()
        return dataclasses.replace(made, static=StaticScale(scale, offset), bias=bias)

    def outline(self, cut: MatrixCut, dtype: torch.dtype) -> Int8Matrix:
        """See `MatrixFormat.outline`."""
        made = int8_outline(cut)
        if "input_scale" not in self.static_shapes:
            return made
        bias = torch.empty_like(made.scales) if "input_zero_point" in self.static_shapes else None
        return dataclasses.replace(made, static=StaticScale(1.0), bias=bias)

    def needs_whole_rows(self, cut: MatrixCut) -> bool:
        """See `MatrixFormat.needs_whole_rows`."""
        return False


@dataclass(frozen=True)
class CompressedPacked:
    """`weight_packed` int32 [out, in * bits / 32], `weight_scale` [out, groups], `weight_shape` [2].

    Where weights are not symmetric, `weight_zero_point` int32 [out * bits / 32, groups] stands beside them.

    Formula: a number is stored plus half of the range; weight = (number - zero point) * scale of the group.

    Attributes:
        name, note: see `MatrixFormat`.
        bits: 4 or 8.
        group_size: inputs of a group; -1 and 0 stand for all.
        is_symmetric: there are no zero points.
        has_group_index: `weight_g_idx` [in] says which group an input belongs to.
        what: the matrix and where it is described, for errors.
    """

    name: str
    note: str
    bits: int
    group_size: int
    is_symmetric: bool = True
    has_group_index: bool = False
    what: str = "a packed matrix"

    def create(self, owner: nn.Module, cut: MatrixCut, factory: ParameterFactory) -> None:
        """Registers the tensors."""
        add = Registrar(owner, cut, factory).add
        per_word = WORD_BITS // self.bits
        words = -(-cut.num_inputs // per_word)
        packed = Along(1, per_word, is_packed=True)
        add("weight_packed", (cut.num_outputs, words), torch.int32, outputs=Along(0), inputs=packed)
        group_size = self._group_size(cut)
        num_groups = cut.num_inputs // group_size
        groups = None if self.has_group_index else Along(1, group_size)
        add("weight_scale", (cut.num_outputs, num_groups), torch.float32, outputs=Along(0), inputs=groups)
        add("weight_shape", (2,), torch.int64, other_dtypes=(torch.int32,))
        if not self.is_symmetric:
            zeros = (-(-cut.num_outputs // per_word), num_groups)
            add("weight_zero_point", zeros, torch.int32, outputs=Along(0, per_word), inputs=groups)
        if self.has_group_index:
            add("weight_g_idx", (cut.num_inputs,), torch.int32, inputs=Along(0), other_dtypes=(torch.int64,))

    def matrix(self, owner: nn.Module, cut: MatrixCut) -> Int4Matrix | Int8Matrix:
        """Exact for symmetric weights of four bits in groups, or of eight bits with one scale an output."""
        packed, shape = parameter_of(owner, "weight_packed"), parameter_of(owner, "weight_shape")
        if shape.tolist() != [cut.num_outputs, cut.num_inputs]:
            raise CheckpointError(
                f"{source_of(shape)} says {shape.tolist()}, but the matrix is {[cut.num_outputs, cut.num_inputs]}"
            )
        half = 1 << (self.bits - 1)
        numbers = unpacked_words(packed.detach(), self.bits, 1)[:, : cut.own_shape[1]].to(torch.int16) - half
        zeros = self._zeros(owner, cut, half)
        groups = self._groups(owner, cut)
        stored = parameter_of(owner, "weight_scale")

        def of_zeros() -> Tensor:
            is_zero = numbers == (0 if zeros is None else zeros[:, groups])
            return only_zeros(is_zero, stored, torch.arange(len(numbers)), groups)

        scales = check_scales(stored, of_zeros=of_zeros)
        if self._is_exact(cut):
            values = numbers.to(torch.int8)
            if self.bits == 4:
                return grouped_matrix(values, scales, self._group_size(cut), cut, packed)
            return int8_matrix(values, scales, cut)

        def dequantised(rows: slice) -> Tensor:
            values = numbers[rows].float()
            if zeros is not None:
                values = values - zeros[rows][:, groups].float()
            return values * scales[rows][:, groups]

        return requantised(cut, dequantised, packed)

    def outline(self, cut: MatrixCut, dtype: torch.dtype) -> Int4Matrix | Int8Matrix:
        """See `MatrixFormat.outline`."""
        is_int4 = self.bits == 4 and self._is_exact(cut)
        return int4_outline(cut, self._group_size(cut)) if is_int4 else int8_outline(cut)

    def needs_whole_rows(self, cut: MatrixCut) -> bool:
        """See `MatrixFormat.needs_whole_rows`."""
        return not self._is_exact(cut)

    def _is_exact(self, cut: MatrixCut) -> bool:
        if not self.is_symmetric or self.has_group_index:
            return False
        group_size = self._group_size(cut)
        return fits_int4(cut, group_size) if self.bits == 4 else group_size == cut.num_inputs

    def _group_size(self, cut: MatrixCut) -> int:
        return own_group(self.group_size, cut.num_inputs, self.what)

    def _zeros(self, owner: nn.Module, cut: MatrixCut, half: int) -> Tensor | None:
        if self.is_symmetric:
            return None
        raw = unpacked_words(parameter_of(owner, "weight_zero_point").detach(), self.bits, 0)
        return raw[cut.positions(0, WORD_BITS // self.bits)].to(torch.int16) - half

    def _groups(self, owner: nn.Module, cut: MatrixCut) -> Tensor:
        if not self.has_group_index:
            group_size = self._group_size(cut)
            return cut.positions(1, group_size) // group_size
        given = parameter_of(owner, "weight_g_idx")
        if ((given < 0) | (given >= parameter_of(owner, "weight_scale").shape[1])).any():
            raise CheckpointError(f"{source_of(given)} names groups that do not exist")
        return given.detach().long()
