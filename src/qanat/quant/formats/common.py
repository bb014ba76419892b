"""What the schemes of all checkpoint formats share: from the format of each matrix to the method of each layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from torch import nn

from qanat.core.decision import Decision
from qanat.core.errors import CheckpointError
from qanat.quant.base import ExpertSizes, ExpertsMethod, LinearMethod
from qanat.quant.formats.floats import FloatMatrix
from qanat.quant.parameter import TensorHeader
from qanat.quant.stored import DOWN, GATE, UP, MatrixFormat, StoredExperts, StoredLinear

WEIGHT_ONLY = "weights are int8 as in the checkpoint; activations, which it leaves in 16 bits, become int8"
"""Note of int8 matrices that were made for activations of 16 bits."""

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


def whole_number(section: Mapping[str, Any], key: str, default: int, where: str) -> int:
    """An entry of config.json that is a number of things.

    Raises:
        CheckpointError: it is no whole number.
    """
    value = section.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CheckpointError(f"{where}: {key} {value!r} is no whole number")
    return value


def pair_of_sizes(value: object, where: str) -> tuple[int, int]:
    """(outputs, inputs) of the blocks that have a scale each.

    Raises:
        CheckpointError: it is no pair of positive whole numbers.
    """
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(isinstance(size, int) and size > 0 for size in value)
    ):
        raise CheckpointError(f"{where} {value!r} is no pair of sizes")
    return value[0], value[1]


def single_shape(headers: Mapping[str, TensorHeader], name: str) -> tuple[int, ...]:
    """Shape of a tensor of one number, which is written with an axis or without."""
    header = headers.get(name)
    return () if header is not None and header.shape == () else (1,)


def own_group(group_size: int, num_inputs: int, what: str) -> int:
    """Inputs that share a scale; -1 and 0 stand for all of them.

    Raises:
        CheckpointError: no whole number of groups makes the inputs.
    """
    size = num_inputs if group_size <= 0 else group_size
    if num_inputs % size:
        raise CheckpointError(f"{what}: {num_inputs} inputs do not divide into groups of {size}")
    return size
