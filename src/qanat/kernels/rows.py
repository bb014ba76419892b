"""What ops take besides tensors: rows that several products read, quantised once for all, and shared experts."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor


class RowFormat(NamedTuple):
    """How a packed quantised matrix reads its activations: matrices that agree in it share the rows.

    Attributes:
        is_int4: the kind of matrix, which decides about the sums that stand beside the values.
        num_inputs: of a row.
        segment_length: inputs that share a scale.
        inputs_per_cell: of an int4 matrix, inputs that have a sum; 0 otherwise.
        is_static: the checkpoint fixes scale and offset.
        static_scale, static_offset: those, see `qanat.kernels.quantised.StaticScale`.
    """

    is_int4: bool
    num_inputs: int
    segment_length: int
    inputs_per_cell: int
    is_static: bool
    static_scale: float
    static_offset: float


class SharedRows(NamedTuple):
    """Rows as they are, with what quantised products read of them.

    Ops that know nothing of the format take the values and quantise them as they would a tensor: same bits, more work.

    Attributes:
        values: [T, in].
        format: of the quantised rows.
        memory: the quantised rows; None where the provider that made the values has none.
    """

    values: Tensor
    format: RowFormat
    memory: Tensor | None

    @property
    def shape(self) -> torch.Size:
        """Of the values."""
        return self.values.shape

    @property
    def dtype(self) -> torch.dtype:
        """Of the values."""
        return self.values.dtype


class SharedExpert(NamedTuple):
    """An expert that every row takes, behind its first two products.

    Attributes:
        gate, up: those products, [T, I].
        down: its second matrix [C, I], as it is or packed.
        scale: its result is multiplied by the sigmoid of it, [T, 1].
    """

    gate: Tensor
    up: Tensor
    down: Any
    scale: Tensor


Rows: TypeAlias = Tensor | SharedRows
"""What products take."""


def plain(rows: Rows) -> Tensor:
    """The values."""
    return rows if isinstance(rows, Tensor) else rows.values


def row_format(*matrices: Any) -> RowFormat | None:
    """The format in which the first quantised one of some packed matrices reads its rows; None where there is none.

    Matrices that no provider has packed quantise for themselves.
    """
    for matrix in matrices:
        found: RowFormat | None = getattr(matrix, "row_format", None)
        if found is not None:
            return found
    return None
