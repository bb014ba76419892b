"""From what checkpoints hold to what the CPU multiplies."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from qanat.core.errors import CheckpointError
from qanat.kernels.quantised import (
    INT4_GRANULE,
    INT8_GRANULE,
    NUM_SEGMENTS,
    Int4Matrix,
    Int8Matrix,
    whole_row_length,
)
from qanat.quant.cut import MatrixCut
from qanat.quant.parameter import WeightParameter

LEAST_CELL = 16
"""Fewer inputs between two changes of a scale are not worth the change: such a matrix is stored in int8."""

LARGEST = 127

_CHUNK_VALUES = 2**20
"""Values that are widened to fp32 at a time."""


def int8_outline(cut: MatrixCut) -> Int8Matrix:
    """An int8 matrix without values."""
    values = torch.empty(cut.own_shape, dtype=torch.int8, device="meta")
    return Int8Matrix(
        values, values.new_empty(cut.own_shape[0], dtype=torch.float32), segment_length=_segment_length(cut)
    )


def as_int8(matrix: Int8Matrix | Int4Matrix) -> Int8Matrix:
    """The matrix in int8; exact where each output has one scale."""
    if isinstance(matrix, Int8Matrix):
        return matrix
    if matrix.scales.shape[-1] == 1:
        return Int8Matrix(matrix.values, matrix.scales.squeeze(-1))
    return Int8Matrix(*_rounded(matrix.dequantised()))


def fits_int4(cut: MatrixCut, group_size: int) -> bool:
    """Whether a matrix with such groups of inputs can be stored in int4."""
    num_inputs = cut.own_shape[1]
    starts = [start for start, _ in cut.shard.pieces] if cut.cuts_inputs and cut.shard is not None else [0]
    if group_size == cut.num_inputs:
        return True
    if num_inputs % group_size or any(start % group_size for start in starts):
        return False
    return int4_outline(cut, group_size).inputs_per_cell >= LEAST_CELL


def int4_outline(cut: MatrixCut, group_size: int) -> Int4Matrix:
    """An int4 matrix without values; a group of all inputs stays one for a rank that has a part of them."""
    num_outputs, num_inputs = cut.own_shape
    values = torch.empty(num_outputs, num_inputs, dtype=torch.int8, device="meta")
    own_group = num_inputs if group_size == cut.num_inputs else group_size
    scales = values.new_empty(num_outputs, num_inputs // own_group, dtype=torch.float32)
    length = 0
    if cut.cuts_inputs:
        granule = INT4_GRANULE if group_size % INT4_GRANULE == 0 else own_group
        length = _rounded_up(-(-cut.num_inputs // NUM_SEGMENTS), granule)
    return Int4Matrix(values, scales, own_group, length)


def int8_matrix(values: Tensor, scales: Tensor, cut: MatrixCut) -> Int8Matrix:
    """Values [out, in] int8 with the scale of each output."""
    return Int8Matrix(
        values.detach(), scales.detach().reshape(-1).float(), segment_length=_segment_length(cut)
    )


def grouped_matrix(
    values: Tensor, scales: Tensor, group_size: int, cut: MatrixCut, name: Tensor
) -> Int8Matrix | Int4Matrix:
    """Values [out, in] int8, -8..7, with scales [out, groups]: int4, or int8 where groups are too small.

    Args:
        values: of the region.
        scales: fp32, one for each group that the region has a part of.
        group_size: inputs of a group of the whole matrix.
        cut: the region.
        name: parameter that is named if a value turns out impossible.
    """
    if fits_int4(cut, group_size):
        outline = int4_outline(cut, group_size)
        return Int4Matrix(values, scales.float().contiguous(), outline.group_size, outline.segment_length)
    groups = cut.positions(1, group_size) // group_size
    return requantised(cut, lambda rows: values[rows].float() * scales[rows].float()[:, groups], name)


def requantised(cut: MatrixCut, dequantise: Callable[[slice], Tensor], name: Tensor) -> Int8Matrix:
    """An int8 matrix from rows in fp32, a few at a time.

    Args:
        cut: the region.
        dequantise: some rows of the region, [n, in] fp32.
        name: parameter that is named if a value is not finite.

    Raises:
        CheckpointError: a value is not finite.
    """
    num_outputs, num_inputs = cut.own_shape
    values = torch.empty(num_outputs, num_inputs, dtype=torch.int8)
    scales = torch.empty(num_outputs)
    step = max(1, _CHUNK_VALUES // num_inputs)
    for start in range(0, num_outputs, step):
        rows = slice(start, min(start + step, num_outputs))
        values[rows], scales[rows] = _rounded(dequantise(rows))
        if not torch.isfinite(scales[rows]).all():
            raise CheckpointError(f"{source_of(name)} has a value that is not a finite number")
    return int8_matrix(values, scales, cut)


def _rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(values int8, scales fp32 [out]): the largest weight of each output is put on 127; overwrites the rows.

    No better scale is searched: the weights were rounded before, and a checkpoint of many GB is to load soon.
    """
    peak = rows.abs().amax(1)
    scales = peak / LARGEST
    inverse = torch.where(peak == 0, 0.0, LARGEST / peak)
    return rows.mul_(inverse.unsqueeze(1)).round_().clamp_(-LARGEST, LARGEST).to(torch.int8), scales


def source_of(parameter: Tensor) -> str:
    """Which tensor of which file a parameter was filled from."""
    source = parameter.source if isinstance(parameter, WeightParameter) else ""
    return source or "a quantised tensor"


def check_scales(
    parameter: Tensor, *, of_zeros: Callable[[], Tensor] | None = None, may_be_negative: bool = False
) -> Tensor:
    """The values of a tensor of scales in fp32.

    Args:
        parameter: the scales.
        of_zeros: gives bool of the same shape: a scale may be zero, as there are only zeros that it scales. Asked only
            if a scale is zero.
        may_be_negative: small whole numbers have one more step below zero, and some tools turn it to the other side.

    Raises:
        CheckpointError: one is not a positive, finite number.
    """
    scales = parameter.detach().float()
    is_right = torch.isfinite(scales) & ((scales != 0) if may_be_negative else (scales > 0))
    if of_zeros is not None and (scales == 0).any():
        is_right |= (scales == 0) & of_zeros()
    if not is_right.all():
        place = (~is_right).nonzero()[0].tolist()
        raise CheckpointError(
            f"{source_of(parameter)} has the scale {scales[tuple(place)].item()} at {place}; scales are positive, "
            "finite numbers: the file is damaged, or made for something else"
        )
    return scales


def only_zeros(is_zero: Tensor, scales: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Which scales have only zeros to scale -> bool of their shape.

    Args:
        is_zero: bool [out, in] of the weights.
        scales: [blocks of outputs, blocks of inputs].
        rows: the block of each output.
        columns: the block of each input.
    """
    of_columns = torch.zeros(is_zero.shape[0], scales.shape[1]).index_add_(1, columns, (~is_zero).float())
    return torch.zeros(scales.shape).index_add_(0, rows, of_columns) == 0


def check_no_offsets(parameter: Tensor) -> None:
    """Refuses offsets of weights where only symmetric ones are read.

    Raises:
        CheckpointError: one is not zero.
    """
    if check_finite(parameter).any():
        raise CheckpointError(
            f"{source_of(parameter)} has offsets that are not zero; weights of this kind are read if they are symmetric"
        )


def check_finite(parameter: Tensor) -> Tensor:
    """The values of a tensor in fp32.

    Raises:
        CheckpointError: one is not finite.
    """
    values = parameter.detach().float()
    if not torch.isfinite(values).all():
        raise CheckpointError(f"{source_of(parameter)} has a value that is not a finite number")
    return values


def _segment_length(cut: MatrixCut) -> int:
    """Of an int8 matrix: an eighth of the whole one's inputs where ranks share them, all of them elsewhere."""
    if cut.is_row_parallel or cut.cuts_inputs:
        return _rounded_up(-(-cut.num_inputs // NUM_SEGMENTS), INT8_GRANULE)
    return whole_row_length(cut.num_inputs)


def _rounded_up(size: int, granule: int) -> int:
    return -(-size // granule) * granule
