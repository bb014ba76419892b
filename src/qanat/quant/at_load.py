"""Schemes that quantise a plain checkpoint while it is loaded, layer by layer.

The layers keep the parameters that they have unquantised, so that the checkpoint is read as ever; `finalize` rounds
them. A rank that keeps some of the inputs of a matrix reads all of them: scales are chosen over whole rows, so that
any number of ranks has the same weights, and so has a checkpoint that `qanat quantize` made.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from qanat.core.decision import Decision
from qanat.core.errors import CheckpointError
from qanat.kernels import ops
from qanat.kernels.quantised import GROUP_SIZE, Int4Matrix, Int8Matrix, QuantisedMatrix, with_whole_rows
from qanat.quant.base import ExpertSizes, ExpertsMethod, LinearMethod, LinearSizes, Measure, StoredKind
from qanat.quant.cut_inputs import cut_inputs
from qanat.quant.own import Precision, precision_of
from qanat.quant.parameter import ParameterFactory, ParameterInfo, WeightParameter, linear_info
from qanat.quant.unquantized import UnquantizedExperts, UnquantizedLinear

Part: TypeAlias = Callable[[QuantisedMatrix], QuantisedMatrix]
"""What a rank keeps of a whole matrix, as its products take it."""


class AtLoadLinear(UnquantizedLinear):
    """A `LinearMethod` that rounds its matrix once it is there.

    Args:
        precision: what it becomes.
        name: of the layer, for messages.
    """

    def __init__(self, precision: Precision, name: str) -> None:
        self._precision, self._name = precision, name
        self._part: Part = with_whole_rows

    def create(self, layer: nn.Module, sizes: LinearSizes, factory: ParameterFactory) -> None:
        """Registers `weight` [out, in]: of the inputs all, of the outputs this rank's."""
        info = linear_info(sizes.num_inputs, sizes.shard_axis, sizes.sections, sizes.num_units)
        shape = (sizes.num_outputs, sizes.num_inputs)
        if sizes.shard_axis == 1:
            own = info.sharded(shape, factory.group.rank, factory.group.size)
            self._part = functools.partial(cut_inputs, shard=own.shard)
            info = linear_info(sizes.num_inputs)
        layer.register_parameter("weight", factory.make(shape, info))

    def finalize(self, layer: nn.Module) -> None:
        """Rounds and packs the matrix; what was read of it is given up.

        Raises:
            CheckpointError: a value is not finite.
        """
        _replace(layer, "weight", self._precision, self._part, self._name, ops.pack_matrix)

    def kinds(self, layer: nn.Module, measure: Measure) -> Iterable[StoredKind]:
        """One matrix."""
        outline = _outline(layer.weight, self._precision, self._part)
        yield StoredKind(self._precision.ascend_kind, self._precision.value, 1, measure(outline))


class AtLoadExperts(UnquantizedExperts):
    """An `ExpertsMethod` that rounds the matrices of all experts once they are there.

    Args:
        gate_up, down: what the matrices become.
        name: of the layer, for messages.
    """

    def __init__(self, gate_up: Precision, down: Precision, name: str) -> None:
        self._precisions = {"gate_up_proj": gate_up, "down_proj": down}
        self._name = name
        self._parts: dict[str, Part] = {}

    def create(self, layer: nn.Module, sizes: ExpertSizes, factory: ParameterFactory) -> None:
        """Registers both stacks: of the inputs all, of the outputs this rank's."""
        super().create(layer, sizes, factory)
        down: Any = layer.down_proj
        own = functools.partial(cut_inputs, shard=down.info.shard)
        self._parts = {"gate_up_proj": with_whole_rows, "down_proj": own}
        delattr(layer, "down_proj")
        shape = (sizes.num_experts, sizes.hidden_size, sizes.intermediate_size)
        whole = ParameterInfo(dummy_std=down.info.dummy_std)
        layer.register_parameter("down_proj", factory.make(shape, whole))

    def finalize(self, layer: nn.Module) -> None:
        """Rounds and packs both stacks; what was read of each is given up before the next.

        Raises:
            CheckpointError: a value is not finite.
        """
        for name, precision in self._precisions.items():
            _replace(layer, name, precision, self._parts[name], self._name, ops.pack_experts)

    def kinds(self, layer: nn.Module, measure: Measure) -> Iterable[StoredKind]:
        """Three matrices for each expert."""
        for name, precision in self._precisions.items():
            outline = _outline(getattr(layer, name), precision, self._parts[name])
            num_matrices = outline.shape[0] * (2 if name == "gate_up_proj" else 1)
            yield StoredKind(precision.ascend_kind, precision.value, num_matrices, measure(outline))


class OwnScheme:
    """A `Scheme` made at load.

    Args:
        name: one of `qanat.config.quantization.AT_LOAD`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._layers: Counter[str] = Counter()

    def method_for(self, module_name: str, module: nn.Module) -> LinearMethod | ExpertsMethod | None:
        """See `Scheme.method_for`."""
        sizes: Any = module.sizes
        if isinstance(sizes, ExpertSizes):
            outer, inner = sizes.hidden_size, sizes.intermediate_size
            gate_up = precision_of(self.name, module_name, 2 * inner, outer)
            down = precision_of(self.name, module_name, outer, inner)
            assert gate_up is not None and down is not None, "experts are always quantised"
            self._layers.update((gate_up.value, down.value))
            return AtLoadExperts(gate_up, down, module_name)
        precision = precision_of(self.name, module_name, sizes.num_outputs, sizes.num_inputs)
        self._layers[precision.value if precision is not None else "float"] += 1
        return None if precision is None else AtLoadLinear(precision, module_name)

    def decisions(self) -> Sequence[Decision]:
        """Which layers become what."""
        parts = [f"{count} {kind}" for kind, count in sorted(self._layers.items())]
        why = "the plain checkpoint is quantised while it is loaded; `qanat quantize` does it once for all starts"
        return [Decision("--quantization", self.name, f"layers: {', '.join(parts)}", why)]


def _replace(
    layer: nn.Module, name: str, precision: Precision, part: Part, layer_name: str, pack: Any
) -> None:
    """Rounds a parameter, keeps this rank's inputs, and puts what `pack` makes of it in the parameter's place."""
    parameter = getattr(layer, name)
    try:
        matrix = precision.quantise(parameter, num_threads=torch.get_num_threads())
    except ValueError as error:
        where = getattr(parameter, "source", "") or f"{layer_name}.{name}"
        raise CheckpointError(f"{where}: {error}, so it cannot be quantised") from None
    delattr(layer, name)
    setattr(layer, name, pack(part(matrix)))


def _outline(parameter: Tensor | nn.Module, precision: Precision, part: Part) -> QuantisedMatrix:
    """What a parameter becomes, without values."""
    assert isinstance(parameter, WeightParameter), "asked before finalize"
    shape = parameter.shape
    values = torch.empty(shape, dtype=torch.int8, device="meta")
    if precision is Precision.INT8:
        return part(Int8Matrix(values, torch.empty(shape[:-1], device="meta")))
    # Rounded scales are numbers that bf16 has, and are packed as such.
    scales = torch.empty(*shape[:-1], shape[-1] // GROUP_SIZE, dtype=torch.bfloat16, device="meta")
    return part(Int4Matrix(values, scales, GROUP_SIZE))
