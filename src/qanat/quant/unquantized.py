"""Weights as the checkpoint has them: bf16, fp16 or fp32."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from qanat.kernels import ops
from qanat.kernels.rows import Rows
from qanat.quant.base import ExpertSizes, LinearSizes, Measure, StoredKind
from qanat.quant.parameter import ParameterFactory, ParameterInfo, linear_info


def pack_parameter(layer: nn.Module, name: str, pack: Callable[[Tensor], Any]) -> None:
    """Puts what `pack` makes of a parameter in its place; the parameter is given up if that is something new."""
    parameter = getattr(layer, name)
    packed = pack(parameter)
    if packed is not parameter:
        delattr(layer, name)
        setattr(layer, name, packed)


def float_kind(weight: Tensor, num_matrices: int, size_bytes: int) -> StoredKind:
    """Matrices that stay what they are."""
    name = str(weight.dtype).removeprefix("torch.")
    return StoredKind(name, name, num_matrices, size_bytes)


class WeightProducts:
    """What every `LinearMethod` does with the `weight` that it has left on the layer, packed or not."""

    def matrix(self, layer: nn.Module) -> Any:
        """The weight."""
        return layer.weight

    def apply(self, layer: nn.Module, x: Rows, context: object) -> Tensor:
        """Product of x [T, in] with the matrix -> [T, out]."""
        return ops.linear(x, layer.weight)

    def logits(self, layer: nn.Module, hidden: Rows) -> Tensor:
        """The same product, kept in fp32."""
        return ops.logits(hidden, layer.weight)

    def rows(self, layer: nn.Module, token_ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows of the matrix: token_ids [T] -> [T, in], in its type or, of a quantised one, in `dtype`."""
        return ops.embedding(token_ids, layer.weight, dtype)


class UnquantizedLinear(WeightProducts):
    """A `LinearMethod` with one parameter, `weight` [out, in]."""

    def create(self, layer: nn.Module, sizes: LinearSizes, factory: ParameterFactory) -> None:
        """Registers `weight`."""
        info = linear_info(sizes.num_inputs, sizes.shard_axis, sizes.sections, sizes.num_units)
        layer.register_parameter("weight", factory.make((sizes.num_outputs, sizes.num_inputs), info))

    def finalize(self, layer: nn.Module) -> None:
        """Packs the matrix where the products want it; otherwise it is used as it lies in the file."""
        segment_length = layer.weight.info.segment_length  # type: ignore[union-attr]  # `create` has made it
        pack_parameter(layer, "weight", functools.partial(ops.pack_matrix, segment_length=segment_length))

    def kinds(self, layer: nn.Module, measure: Measure) -> Iterable[StoredKind]:
        """One matrix."""
        yield float_kind(layer.weight, 1, measure(layer.weight))


class UnquantizedEmbedding(UnquantizedLinear):
    """The same for a table of embeddings, which is packed only if it is the head too: rows are read as they lie."""

    def create(self, layer: nn.Module, sizes: LinearSizes, factory: ParameterFactory) -> None:
        """Registers `weight` [V, C]."""
        info = ParameterInfo(shard_axis=sizes.shard_axis, dummy_std=1.0)
        layer.register_parameter("weight", factory.make((sizes.num_outputs, sizes.num_inputs), info))

    def finalize(self, layer: nn.Module) -> None:
        """Packs the table of a model with tied embeddings."""
        if layer.is_head:
            super().finalize(layer)

    def kinds(self, layer: nn.Module, measure: Measure) -> Iterable[StoredKind]:
        """One matrix."""
        weight: Tensor = layer.weight  # type: ignore[assignment]
        yield float_kind(weight, 1, measure(weight) if layer.is_head else weight.nbytes)


class ExpertsProducts:
    """What every `ExpertsMethod` does with the `gate_up_proj` and `down_proj` that it has left on the layer."""

    def matrices(self, layer: nn.Module) -> tuple[Any, Any]:
        """Both."""
        return layer.gate_up_proj, layer.down_proj

    def apply(self, layer: nn.Module, x: Rows, expert_ids: Tensor, context: object) -> Tensor:
        """Unweighted results [T, K, C] of x [T, C] and its experts [T, K]."""
        return ops.moe_experts(x, expert_ids, layer.gate_up_proj, layer.down_proj)


class UnquantizedExperts(ExpertsProducts):
    """An `ExpertsMethod` with `gate_up_proj` [E, 2I, C], gate rows first, and `down_proj` [E, C, I]."""

    def create(self, layer: nn.Module, sizes: ExpertSizes, factory: ParameterFactory) -> None:
        """Registers both; tensor parallelism splits the inner width, gate and up each on their own."""
        outer, inner = sizes.hidden_size, sizes.intermediate_size
        gate_up = ParameterInfo(1, (inner, inner), dummy_std=outer**-0.5)
        layer.register_parameter("gate_up_proj", factory.make((sizes.num_experts, 2 * inner, outer), gate_up))
        layer.register_parameter(
            "down_proj", factory.make((sizes.num_experts, outer, inner), linear_info(inner, shard_axis=2))
        )

    def finalize(self, layer: nn.Module) -> None:
        """Packs both where the products want it."""
        pack_parameter(layer, "gate_up_proj", ops.pack_experts)
        pack_parameter(layer, "down_proj", ops.pack_experts)

    def kinds(self, layer: nn.Module, measure: Measure) -> Iterable[StoredKind]:
        """Three matrices for each expert."""
        size_bytes = measure(layer.gate_up_proj) + measure(layer.down_proj)
        yield float_kind(layer.down_proj, 3 * layer.down_proj.shape[0], size_bytes)
