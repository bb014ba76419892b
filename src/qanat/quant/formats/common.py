"""What the schemes of all checkpoint formats share: from the format of each matrix to the method of each layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from torch import nn

from qanat.core.decision import Decision
from qanat.core.errors import CheckpointError
from qanat.quant.base import ExpertSizes, ExpertsMethod, LinearMethod
from qanat.quant.formats.floats import FloatMatrix
from qanat.quant.parameter import TensorHeader
from qanat.quant.stored import DOWN, GATE, UP, MatrixFormat, StoredExperts, StoredLinear

FormatOf: TypeAlias = Callable[[str], MatrixFormat | None]
"""The format of the matrix of this name, such as "model.layers.0.mlp.down_proj"; None if it is not quantised."""


class CheckpointScheme:
    """A `Scheme` that follows what a checkpoint says of each matrix.

    Args:
        name: see `Scheme`.
        format_of: asked for each matrix of the model; each expert has three.
        headers: tensors of the checkpoint, see `SchemeSource`.
    """

    def __init__(self, name: str, format_of: FormatOf, headers: Mapping[str, TensorHeader]) -> None:
        self.name = name
        self._format_of = format_of
        self._headers = headers
        self._decisions: dict[str, Decision] = {}

    def method_for(self, module_name: str, module: nn.Module) -> LinearMethod | ExpertsMethod | None:
        """See `Scheme.method_for`."""
        if isinstance(module.sizes, ExpertSizes):
            return self._experts(module_name, module.sizes)
        matrix_format = self._format_of(module_name)
        return StoredLinear(matrix_format) if matrix_format is not None else None

    def decisions(self) -> Sequence[Decision]:
        """See `Scheme.decisions`."""
        return list(self._decisions.values())

    def _experts(self, module_name: str, sizes: ExpertSizes) -> StoredExperts | None:
        """None if no expert is quantised; then they may be stacked in the checkpoint, too."""
        if f"{module_name}.gate_up_proj" in self._headers:
            return None
        found = [
            {part: self._format_of(f"{module_name}.{expert}.{part}") for part in (GATE, UP, DOWN)}
            for expert in range(sizes.num_experts)
        ]
        if all(each is None for formats in found for each in formats.values()):
            return None
        formats = [{part: each or FloatMatrix() for part, each in row.items()} for row in found]
        names = sorted({each.name for row in formats for each in row.values()})
        if len(names) > 1:
            why = "experts that are stored in several ways are brought to one that holds them all"
            self._decisions.setdefault(
                "+".join(names), Decision("experts", " and ".join(names), "one stack", why)
            )
        return StoredExperts(formats)


def own_group(group_size: int, num_inputs: int, what: str) -> int:
    """Inputs that share a scale; -1 and 0 stand for all of them.

    Raises:
        CheckpointError: no whole number of groups makes the inputs.
    """
    size = num_inputs if group_size <= 0 else group_size
    if num_inputs % size:
        raise CheckpointError(f"{what}: {num_inputs} inputs do not divide into groups of {size}")
    return size
