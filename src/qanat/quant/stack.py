"""The matrices of all experts of a layer as one stack: of one kind, whatever kinds they come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from qanat.core.errors import CheckpointError
from qanat.kernels.quantised import Int4Matrix, Int8Matrix
from qanat.quant.convert import as_int8

Matrix: TypeAlias = Tensor | Int8Matrix | Int4Matrix


@dataclass
class Stack:
    """A stack [E, rows, in] that is filled matrix by matrix.

    All matrices are stored in one way: in int4 if all are, with equal groups; in a float type if one of them is; in
    int8 otherwise. Activations are quantised from each row then, so fixed scales of the activations are left out, and
    with them the correction that belongs to them.

    Attributes:
        matrix: the stack.
    """

    matrix: Matrix

    @classmethod
    def for_all(cls, outlines: Sequence[Sequence[Matrix]], dtype: torch.dtype) -> Stack:
        """The stack for matrices that look so: for each expert, those that stand below one another in it."""
        flat = [outline for row in outlines for outline in row]
        num_experts, num_inputs = len(outlines), flat[0].shape[-1]
        num_rows = sum(outline.shape[0] for outline in outlines[0])
        shape = (num_experts, num_rows, num_inputs)
        first = flat[0]
        if any(isinstance(outline, Tensor) for outline in flat):
            return cls(torch.empty(shape, dtype=dtype, device="meta"))
        values = torch.empty(shape, dtype=torch.int8, device="meta")
        lengths = {type(o): o.segment_length for o in reversed(flat) if not isinstance(o, Tensor)}
        if isinstance(first, Int4Matrix) and all(
            isinstance(o, Int4Matrix) and o.group_size == first.group_size for o in flat
        ):
            scales = torch.empty(*shape[:2], num_inputs // first.group_size, device="meta")
            return cls(Int4Matrix(values, scales, first.group_size, lengths[Int4Matrix]))
        length = lengths.get(Int8Matrix, lengths.get(Int4Matrix, 0))
        return cls(Int8Matrix(values, torch.empty(shape[:2], device="meta"), segment_length=length))

    def allocate(self) -> None:
        """Makes room for the values."""
        matrix = self.matrix
        if isinstance(matrix, Tensor):
            self.matrix = torch.empty(matrix.shape, dtype=matrix.dtype)
            return
        values, scales = torch.empty(matrix.values.shape, dtype=torch.int8), torch.empty(matrix.scales.shape)
        if isinstance(matrix, Int4Matrix):
            self.matrix = Int4Matrix(values, scales, matrix.group_size, matrix.segment_length)
        else:
            self.matrix = Int8Matrix(values, scales, segment_length=matrix.segment_length)

    def put(self, expert: int, position: int, own: Matrix) -> None:
        """Copies a matrix, the `position`-th of its expert, into its place.

        Raises:
            CheckpointError: the expert has a bias.
        """
        stack = self.matrix
        if isinstance(own, Int8Matrix) and own.bias is not None and own.static is None:
            raise CheckpointError(f"expert {expert} has a bias, which experts of these models do not have")
        rows = slice(position * own.shape[0], (position + 1) * own.shape[0])
        if isinstance(stack, Tensor):
            stack[expert, rows] = own if isinstance(own, Tensor) else own.dequantised()
            return
        assert not isinstance(own, Tensor), "see for_all"
        if isinstance(stack, Int8Matrix):
            own = as_int8(own)
        stack.values[expert, rows] = own.values
        stack.scales[expert, rows] = own.scales
