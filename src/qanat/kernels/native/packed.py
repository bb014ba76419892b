"""Weights in the layout that the native products read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qanat.kernels.native.module import native
from qanat.kernels.native.tensors import FLOAT_TYPES, is_bf16


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


@dataclass(frozen=True)
class PackedExperts:
    """The matrices of all experts of a layer, each packed."""

    experts: tuple[PackedWeight, ...]

    @property
    def matrices(self) -> list[Any]:
        """The module's objects."""
        return [expert.matrix for expert in self.experts]


def pack(weight: Tensor) -> PackedWeight:
    """A packed copy of a matrix [out, in], bf16 or fp32, on the CPU."""
    assert weight.dtype in FLOAT_TYPES and weight.device.type == "cpu", "checked by whoever chooses to pack"
    rows = weight.detach()
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    num_outputs, num_inputs = rows.shape
    matrix = native().PackedMatrix(rows.data_ptr(), rows.stride(0), num_outputs, num_inputs, is_bf16(rows))
    return PackedWeight(matrix, rows.dtype, (num_outputs, num_inputs))
