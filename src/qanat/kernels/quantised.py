"""Quantised matrices as loaders and quantisers make them, and as every provider's `pack_matrix` takes them.

Where ranks may share the inputs, both kinds cut a row's inputs into eight segments (rule R12); activations are
quantised to int8 with a scale for each row and segment, unless the checkpoint fixes one. An int8 matrix whose inputs
every rank has may be one segment. docs/native-kernels.md has the arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

NUM_SEGMENTS = 8
INT8_GRANULE = 4
"""Inputs that stand beside each other in a packed int8 matrix: segments are multiples of it."""
MAX_SEGMENT_INPUTS = 2**16
"""Sums of so many products of two int8 values fit into 32 bits twice over."""
INT4_GRANULE = 32
"""The same for int4; where groups are no multiple of it, the group is the granule."""


@dataclass(frozen=True)
class StaticScale:
    """Fixed quantisation of the activations: q = round(x / scale + offset), within -128..127.

    Attributes:
        scale: of one step.
        offset: added before rounding; the matrix's bias corrects for it.
    """

    scale: float
    offset: float = 0.0


@dataclass(frozen=True)
class Int8Matrix:
    """W8A8: value times the output's scale. For experts every tensor has a leading axis [E].

    Attributes:
        values: int8 [out, in], -128..127.
        scales: fp32 [out].
        static: quantisation of the activations that the checkpoint fixes; None: from each row.
        bias: fp32 [out], added to the product in fp32; None: nothing.
        segment_length: inputs of a segment: of the whole matrix, if this is a shard of its inputs, or all of them, see
            `with_whole_rows`; 0: an eighth.
    """

    values: Tensor
    scales: Tensor
    static: StaticScale | None = None
    bias: Tensor | None = None
    segment_length: int = 0

    @property
    def shape(self) -> torch.Size:
        """([E,] out, in)."""
        return self.values.shape

    @property
    def nbytes(self) -> int:
        """Of all tensors."""
        tensors = [self.values, self.scales, *([] if self.bias is None else [self.bias])]
        return sum(int(tensor.nbytes) for tensor in tensors)

    @property
    def inputs_per_segment(self) -> int:
        """`segment_length`, or what follows from the number of inputs."""
        return self.segment_length or _segment_length(self.shape[-1], INT8_GRANULE)

    def dequantised(self) -> Tensor:
        """The matrix in fp32: value times scale."""
        return self.values.float() * self.scales.unsqueeze(-1)

    def expert(self, index: int) -> Int8Matrix:
        """One matrix of a stack."""
        bias = None if self.bias is None else self.bias[index]
        return replace(self, values=self.values[index], scales=self.scales[index], bias=bias)


GROUP_SIZE = 32
"""Inputs that share a scale in our own 4-bit scheme."""


@dataclass(frozen=True)
class Int4Matrix:
    """W4A8: value times the scale of its group of inputs. For experts both tensors have a leading axis [E].

    Attributes:
        values: int8 [out, in], -8..7, one value a byte.
        scales: fp32 [out, in / group_size], or bf16 where they are rounded to it.
        group_size: inputs that share a scale; divides the number of inputs.
        segment_length: as for `Int8Matrix`.
    """

    values: Tensor
    scales: Tensor
    group_size: int
    segment_length: int = 0

    @property
    def shape(self) -> torch.Size:
        """([E,] out, in)."""
        return self.values.shape

    @property
    def nbytes(self) -> int:
        """Of both tensors, two values in a byte."""
        return int(self.values.nbytes) // 2 + int(self.scales.nbytes)

    @property
    def inputs_per_segment(self) -> int:
        """`segment_length`, or what follows from the number of inputs."""
        granule = INT4_GRANULE if self.group_size % INT4_GRANULE == 0 else self.group_size
        return self.segment_length or _segment_length(self.shape[-1], granule)

    @property
    def inputs_per_cell(self) -> int:
        """Inputs whose products are added as integers: a cell lies in one segment and in one group."""
        return math.gcd(self.inputs_per_segment, self.group_size)

    def dequantised(self) -> Tensor:
        """The matrix in fp32: value times scale."""
        return self.values.float() * self.scales.repeat_interleave(self.group_size, -1)

    def expert(self, index: int) -> Int4Matrix:
        """One matrix of a stack."""
        return replace(self, values=self.values[index], scales=self.scales[index])


QuantisedMatrix: TypeAlias = Int8Matrix | Int4Matrix


def with_whole_rows(matrix: QuantisedMatrix) -> QuantisedMatrix:
    """The same matrix where every rank has all inputs: an int8 one takes each row with one scale, as one segment."""
    if isinstance(matrix, Int4Matrix):
        return matrix
    return replace(matrix, segment_length=whole_row_length(matrix.shape[-1]))


def whole_row_length(num_inputs: int) -> int:
    """Segment length of an int8 matrix of which every rank has all inputs; 0, eighths, where a sum could overflow."""
    length = -(-num_inputs // INT8_GRANULE) * INT8_GRANULE
    return length if length <= MAX_SEGMENT_INPUTS else 0


def _segment_length(num_inputs: int, granule: int) -> int:
    return -(-num_inputs // (NUM_SEGMENTS * granule)) * granule
