"""Weights in the layout that the native products read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qanat.kernels.native.module import native
from qanat.kernels.native.tensors import FLOAT_TYPES, is_bf16, new

PANEL_OUTPUTS = 16
NUM_SEGMENTS = 8
"""Outputs and inputs are brought up to multiples of these by zeros; see `csrc/kernels/arguments.hpp`."""


@dataclass(frozen=True)
class PackedWeight:
    """A matrix [out, in] in the module's own memory.

    Attributes:
        matrix: the module's object.
        dtype: of its values.
        shape: (out, in).
    """

    matrix: Any
    dtype: torch.dtype
    shape: tuple[int, int]

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, rows of zeros up to a whole panel included."""
        return int(self.matrix.size_bytes)

    def rows(self, ids: Tensor) -> Tensor:
        """Some rows [n, in] of the matrix; ids [n] contiguous int64, checked by the caller."""
        out = new((ids.shape[0], self.shape[1]), self.dtype)
        native().embedding(ids.data_ptr(), ids.shape[0], self.matrix, out.data_ptr())
        return out

    def unpacked(self) -> Tensor:
        """The matrix as a tensor."""
        return self.rows(torch.arange(self.shape[0]))


@dataclass(frozen=True)
class PackedExperts:
    """The matrices of all experts of a layer, each packed."""

    experts: tuple[PackedWeight, ...]

    @property
    def matrices(self) -> list[Any]:
        """The module's objects."""
        return [expert.matrix for expert in self.experts]

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return sum(expert.nbytes for expert in self.experts)

    def unpacked(self) -> Tensor:
        """The matrices as one tensor."""
        return torch.stack([expert.unpacked() for expert in self.experts])


def packed_bytes(weight: Tensor) -> int:
    """What a matrix [..., out, in] would take packed, by its shape and type only."""
    *stack, num_outputs, num_inputs = weight.shape
    padded = -(-num_outputs // PANEL_OUTPUTS) * PANEL_OUTPUTS * -(-num_inputs // NUM_SEGMENTS) * NUM_SEGMENTS
    size_bytes: int = math.prod(stack) * padded * weight.dtype.itemsize
    return size_bytes


def pack(weight: Tensor) -> PackedWeight:
    """A packed copy of a matrix [out, in], bf16 or fp32, on the CPU."""
    assert weight.dtype in FLOAT_TYPES and weight.device.type == "cpu", "checked by whoever chooses to pack"
    rows = weight.detach()
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    num_outputs, num_inputs = rows.shape
    matrix = native().PackedMatrix(rows.data_ptr(), rows.stride(0), num_outputs, num_inputs, is_bf16(rows))
    return PackedWeight(matrix, rows.dtype, (num_outputs, num_inputs))
