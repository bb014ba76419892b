"""The seam between layers and weight formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from qanat.kernels.rows import Rows
from qanat.quant.parameter import ParameterFactory

Measure = Callable[[Any], int]
"""Bytes that a matrix takes once it is packed; given what `ops.pack_matrix` or `ops.pack_experts` would get, on any
device: values are not read."""


@dataclass(frozen=True)
class LinearSizes:
    """A matrix to be stored.

    Attributes:
        num_inputs, num_outputs: columns and rows.
        shard_axis: 0 splits outputs (column-parallel), 1 splits inputs (row-parallel), None neither.
        sections: parts of the outputs that are each split on their own; empty for one part.
        num_units: heads in each section, which are never cut; see `ParameterInfo`.
    """

    num_inputs: int
    num_outputs: int
    shard_axis: int | None = None
    sections: tuple[int, ...] = ()
    num_units: tuple[int, ...] = ()


@dataclass(frozen=True)
class ExpertSizes:
    """The matrices of all experts of a layer.

    Attributes:
        num_experts: matrices of each kind.
        hidden_size, intermediate_size: outer and inner width.
    """

    num_experts: int
    hidden_size: int
    intermediate_size: int


@dataclass(frozen=True)
class StoredKind:
    """How some matrices of a layer are stored, for the plan and the log.

    Attributes:
        name: of the kind as the checkpoint or the scheme calls it, such as "W8A8_DYNAMIC" or "bfloat16".
        stored: what it becomes in memory: "int8", "int4" or a float type.
        num_matrices: of this kind.
        size_bytes: that they take.
        note: how they are computed otherwise than the checkpoint means it; empty if they are not.
    """

    name: str
    stored: str
    num_matrices: int
    size_bytes: int
    note: str = ""


class LinearMethod(Protocol):
    """One way to store and multiply a weight matrix. Stateless: everything lies in the layer's parameters.

    `context` is the step's `ForwardContext`; this package lies below the layers and only passes it on. A table of
    embeddings is a matrix too: [vocabulary, width].
    """

    def create(self, layer: nn.Module, sizes: LinearSizes, factory: ParameterFactory) -> None:
        """Registers the parameters on the layer, named as the checkpoint names them."""

    def finalize(self, layer: nn.Module) -> None:
        """Called once, as soon as the layer's last parameter is in: packs the weights where the scheme wants it."""

    def kinds(self, layer: nn.Module, measure: Measure) -> Iterable[StoredKind]:
        """What `finalize` leaves behind, and what it takes; asked before, and values are not read."""

    def matrix(self, layer: nn.Module) -> Any:
        """What `ops.linear` multiplies with, where `apply` does that and nothing else; None where it does more.

        So that layers can have several products computed, or rows quantised, in one call.
        """

    def apply(self, layer: nn.Module, x: Rows, context: object) -> Tensor:
        """Product of x [T, in] with the matrix -> [T, out]."""

    def logits(self, layer: nn.Module, hidden: Rows) -> Tensor:
        """The same product kept in fp32: hidden [T, in] -> [T, out] fp32."""

    def rows(self, layer: nn.Module, token_ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows of the matrix: token_ids [T] -> [T, in], in the matrix's type or, of a quantised one, in `dtype`."""


class ExpertsMethod(Protocol):
    """One way to store and multiply the experts of a layer."""

    def create(self, layer: nn.Module, sizes: ExpertSizes, factory: ParameterFactory) -> None:
        """Registers the parameters on the layer."""

    def finalize(self, layer: nn.Module) -> None:
        """Called once, as soon as the layer's last parameter is in."""

    def kinds(self, layer: nn.Module, measure: Measure) -> Iterable[StoredKind]:
        """See `LinearMethod.kinds`."""

    def matrices(self, layer: nn.Module) -> tuple[Any, Any] | None:
        """What `ops.moe_experts` multiplies with, where `apply` does that and nothing else; None where it does more."""

    def apply(self, layer: nn.Module, x: Rows, expert_ids: Tensor, context: object) -> Tensor:
        """Unweighted results [T, K, C] of x [T, C] and its experts [T, K]."""
