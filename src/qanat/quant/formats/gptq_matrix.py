"""GPTQ (version 1): small whole numbers packed along the inputs, with scales and zero points for groups of inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from qanat.core.errors import CheckpointError
from qanat.kernels.quantised import Int4Matrix, Int8Matrix
from qanat.quant.convert import (
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
from qanat.quant.formats.nibbles import WORD_BITS, unpacked_words
from qanat.quant.parameter import ParameterFactory

NOTE = (
    "weights keep their values and scales; activations, which the checkpoint leaves in 16 bits, become int8"
)
ROUNDED_NOTE = (
    "weights become int8 with one scale an output, which is rounded anew (error at most 1/254 of the output's largest "
    "weight); activations, which the checkpoint leaves in 16 bits, become int8"
)


@dataclass(frozen=True)
class Gptq:
    """`qweight` int32 [in * bits / 32, out], `qzeros` int32 [groups, out * bits / 32], `scales`, `g_idx` [in].

    Formula: weight = scales[g_idx[k], n] * (number - zero), where the file holds zero - 1. In symmetric files the zero
    is half of the range; four bits then are -8..7 and stay what they are.

    Attributes:
        name, note: see `MatrixFormat`.
        bits: 4 or 8.
        group_size: inputs of a group, of which the last may have fewer; -1 and 0 stand for all.
        is_ordered: groups are those of `g_idx`, in any order (`desc_act`); otherwise of neighbouring inputs.
        is_symmetric: zero points are half of the range.
        has_group_index: `g_idx` is there.
        zero_shift: what is added to a stored zero point; 0 in version 2 of the format.
    """

    name: str
    note: str
    bits: int
    group_size: int
    is_ordered: bool = False
    is_symmetric: bool = True
    has_group_index: bool = True
    zero_shift: int = 1

    def create(self, owner: nn.Module, cut: MatrixCut, factory: ParameterFactory) -> None:
        """Registers the tensors."""
        add = Registrar(owner, cut, factory).add
        per_word = WORD_BITS // self.bits
        group_size = self._group_size(cut)
        num_groups = -(-cut.num_inputs // group_size)
        packed = Along(0, per_word, is_packed=True)
        int32 = torch.int32
        add("qweight", (cut.num_inputs // per_word, cut.num_outputs), int32, outputs=Along(1), inputs=packed)
        groups = None if self.is_ordered else Along(0, group_size)
        zeros = (num_groups, -(-cut.num_outputs // per_word))
        add("qzeros", zeros, int32, outputs=Along(1, per_word), inputs=groups)
        scales = (num_groups, cut.num_outputs)
        add("scales", scales, torch.float32, outputs=Along(1), inputs=groups)
        if self.has_group_index:
            add("g_idx", (cut.num_inputs,), int32, inputs=Along(0), other_dtypes=(torch.int64,))

    def matrix(self, owner: nn.Module, cut: MatrixCut) -> Int4Matrix | Int8Matrix:
        """Exact in int4 for symmetric files of four bits; rounded anew to int8 otherwise."""
        weight = parameter_of(owner, "qweight")
        numbers = unpacked_words(weight.detach(), self.bits, 0).t()
        zeros = unpacked_words(parameter_of(owner, "qzeros").detach(), self.bits, 1).t()
        zeros = zeros[cut.positions(0, WORD_BITS // self.bits)].to(torch.int16) + self.zero_shift
        groups = self._groups(owner, cut)
        half = 1 << (self.bits - 1)
        if self.is_symmetric and (zeros != half).any():
            zero = parameter_of(owner, "qzeros")
            raise CheckpointError(
                f"{source_of(zero)} has other zero points than {half}, although config.json says sym"
            )
        scales = self._scales(owner, numbers, zeros, groups)
        if self._is_exact(cut):
            values = (numbers.to(torch.int8) - half).contiguous()
            return grouped_matrix(values, scales, self._group_size(cut), cut, weight)

        def dequantised(rows: slice) -> Tensor:
            difference = numbers[rows].float() - zeros[rows][:, groups].float()
            return difference * scales[rows][:, groups]

        return requantised(cut, dequantised, weight)

    def outline(self, cut: MatrixCut, dtype: torch.dtype) -> Int4Matrix | Int8Matrix:
        """See `MatrixFormat.outline`."""
        return int4_outline(cut, self._group_size(cut)) if self._is_exact(cut) else int8_outline(cut)

    def needs_whole_rows(self, cut: MatrixCut) -> bool:
        """See `MatrixFormat.needs_whole_rows`."""
        return not self._is_exact(cut)

    def _group_size(self, cut: MatrixCut) -> int:
        return self.group_size if self.group_size > 0 else cut.num_inputs

    def _scales(self, owner: nn.Module, numbers: Tensor, zeros: Tensor, groups: Tensor) -> Tensor:
        """Of each output and group, checked."""
        stored = parameter_of(owner, "scales")

        def of_zeros() -> Tensor:
            is_zero = numbers == zeros[:, groups]
            return only_zeros(is_zero, stored.t(), torch.arange(len(numbers)), groups).t()

        return check_scales(stored, of_zeros=of_zeros).t()

    def _is_exact(self, cut: MatrixCut) -> bool:
        is_plain = self.bits == 4 and self.is_symmetric and not self.is_ordered
        return is_plain and fits_int4(cut, self._group_size(cut))

    def _groups(self, owner: nn.Module, cut: MatrixCut) -> Tensor:
        """Which of the registered groups each input of the region belongs to."""
        group_size = self._group_size(cut)
        positions = cut.positions(1, group_size) // group_size
        if not self.has_group_index:
            return positions
        index = parameter_of(owner, "g_idx")
        given = index.detach().long()
        if self.is_ordered:
            num_groups = parameter_of(owner, "scales").shape[0]
            if ((given < 0) | (given >= num_groups)).any():
                raise CheckpointError(f"{source_of(index)} names groups outside 0..{num_groups - 1}")
            return given
        first = cut.shard.pieces[0][0] // group_size if cut.cuts_inputs and cut.shard is not None else 0
        if (given != positions + first).any():
            raise CheckpointError(
                f"{source_of(index)} puts inputs into groups out of order, although config.json says desc_act false"
            )
        return positions
