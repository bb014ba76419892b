"""The part of a whole quantised matrix that a rank of a row-parallel layer keeps."""

from __future__ import annotations

import dataclasses
import math

from torch import Tensor

from qanat.kernels.quantised import Int4Matrix, QuantisedMatrix
from qanat.quant.parameter import Shard


def cut_inputs(matrix: QuantisedMatrix, shard: Shard | None) -> QuantisedMatrix:
    """The matrix with this rank's inputs only; its segments stay those of the whole matrix (rule R12).

    Where a cut goes through a group of inputs, groups become smaller and repeat their scale.

    Args:
        matrix: whole, of one layer or of all experts.
        shard: of one piece along the last axis; None keeps all.
    """
    if shard is None:
        return matrix
    ((start, length),) = shard.pieces
    values = matrix.values.narrow(-1, start, length).contiguous()
    segment_length = matrix.inputs_per_segment
    if not isinstance(matrix, Int4Matrix):
        return dataclasses.replace(matrix, values=values, segment_length=segment_length)
    group_size = math.gcd(matrix.group_size, start, length)
    scales: Tensor = matrix.scales.repeat_interleave(matrix.group_size // group_size, -1)
    scales = scales.narrow(-1, start // group_size, length // group_size).contiguous()
    return Int4Matrix(values, scales, group_size, segment_length)
