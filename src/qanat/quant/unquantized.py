"""Weights as the checkpoint has them: bf16, fp16 or fp32."""

from __future__ import annotations

from torch import Tensor, nn

from qanat.kernels import ops
from qanat.quant.base import ExpertSizes, LinearSizes
from qanat.quant.parameter import ParameterFactory, ParameterInfo, linear_info


class UnquantizedLinear:
    """A `LinearMethod` with one parameter, `weight` [out, in]."""

    def create(self, layer: nn.Module, sizes: LinearSizes, factory: ParameterFactory) -> None:
        """Registers `weight`."""
        info = linear_info(sizes.num_inputs, sizes.shard_axis, sizes.sections, sizes.num_units)
        layer.register_parameter("weight", factory.make((sizes.num_outputs, sizes.num_inputs), info))

    def finalize(self, layer: nn.Module) -> None:
        """Nothing to pack: the matrix is used as it lies in the file."""

    def apply(self, layer: nn.Module, x: Tensor, context: object) -> Tensor:
        """Product of x [T, in] with the matrix -> [T, out]."""
        return ops.linear(x, layer.weight)

    def logits(self, layer: nn.Module, hidden: Tensor) -> Tensor:
        """The same product, kept in fp32."""
        return ops.logits(hidden, layer.weight)


class UnquantizedExperts:
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
        """Nothing to pack."""

    def apply(self, layer: nn.Module, x: Tensor, expert_ids: Tensor, context: object) -> Tensor:
        """Unweighted results [T, K, C] of x [T, C] and its experts [T, K]."""
        return ops.moe_experts(x, expert_ids, layer.gate_up_proj, layer.down_proj)
