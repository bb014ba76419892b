"""Measures what rounding does to a matrix, some rows at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from qanat.kernels.quantised import QuantisedMatrix, with_whole_rows
from qanat.kernels.reference.quantised import quantised_rows

NUM_PROBES = 16
"""Rows of activations that each matrix is multiplied with."""
_SEED = 20


@dataclass(frozen=True)
class Activations:
    """What is known of a matrix's inputs.

    Attributes:
        mean_square: [in] fp32, of each input; tells how much it counts.
        rows: [n, in], some real ones; none for experts, of which there are many.
    """

    mean_square: Tensor
    rows: Tensor


class ErrorMeter:
    """Adds up the error of one matrix.

    Args:
        num_inputs: columns of the matrix.
        activations: real ones; without, or without rows, random rows that are the same each time.
        is_table: a table of embeddings, whose rows are looked up and not multiplied.
        is_row_parallel: ranks share the matrix's inputs, so that eighths of a row have scales of their own.
    """

    def __init__(
        self,
        num_inputs: int,
        activations: Activations | None,
        *,
        is_table: bool = False,
        is_row_parallel: bool = False,
    ) -> None:
        self._weight_sums = [0.0, 0.0]
        self._output_sums = [0.0, 0.0]
        self._is_table, self._is_row_parallel = is_table, is_row_parallel
        self._num_inputs = num_inputs
        self._rounded: Tensor | None = None
        if activations is not None and len(activations.rows):
            self._probes = activations.rows[:NUM_PROBES].float()
        else:
            self._probes = torch.randn(NUM_PROBES, num_inputs, generator=torch.Generator().manual_seed(_SEED))
            if activations is not None:
                self._probes *= activations.mean_square.sqrt()

    def add(self, rows: Tensor, matrix: QuantisedMatrix) -> None:
        """Some rows [n, in] of the matrix in fp32, and the same rows quantised."""
        rounded = matrix.dequantised()
        _add(self._weight_sums, rows, rounded)
        if not self._is_table:
            _add(self._output_sums, self._probes @ rows.t(), self._rounded_probes(matrix) @ rounded.t())

    @property
    def weight_error(self) -> float:
        """Of all rows so far."""
        return _ratio(self._weight_sums)

    @property
    def output_error(self) -> float:
        """Of the products with all rows so far; of the rows themselves for a table."""
        return self.weight_error if self._is_table else _ratio(self._output_sums)

    def _rounded_probes(self, matrix: QuantisedMatrix) -> Tensor:
        """The probes as the products see them: in int8, a scale for each segment."""
        if self._rounded is None:
            seen = matrix if self._is_row_parallel else with_whole_rows(matrix)
            values, scales = quantised_rows(self._probes, seen.inputs_per_segment, None)
            wide = (values * scales.unsqueeze(-1)).view(len(values), -1)
            self._rounded = wide[:, : self._num_inputs].contiguous()
        return self._rounded


def _add(sums: list[float], wanted: Tensor, got: Tensor) -> None:
    sums[0] += (wanted - got).square().sum().item()
    sums[1] += wanted.square().sum().item()


def _ratio(sums: list[float]) -> float:
    return math.sqrt(sums[0] / sums[1]) if sums[1] > 0 else 0.0
