"""Feed-forward parts: dense, and mixture of experts with an optional shared expert."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from qanat.config.model_config import MoeConfig
from qanat.kernels import ops
from qanat.kernels.rows import RowFormat, Rows, SharedExpert, row_format
from qanat.layers.context import ForwardContext
from qanat.layers.linear import ColumnParallelLinear, ReplicatedLinear, RowParallelLinear, linears
from qanat.quant.base import ExpertSizes, ExpertsMethod
from qanat.quant.parameter import ParameterFactory
from qanat.quant.unquantized import UnquantizedExperts


class DenseMLP(nn.Module):
    """The gated unit down(silu(gate x) * up x).

    Args:
        hidden_size, intermediate_size: outer and inner width.
        is_reduced: False leaves each rank's part of the sum to the caller.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        factory: ParameterFactory,
        *,
        is_reduced: bool = True,
    ) -> None:
        """Registers the three matrices."""
        super().__init__()
        self.gate_proj = ColumnParallelLinear(hidden_size, intermediate_size, factory)
        self.up_proj = ColumnParallelLinear(hidden_size, intermediate_size, factory)
        self.down_proj = RowParallelLinear(intermediate_size, hidden_size, factory, is_reduced=is_reduced)

    @property
    def row_format(self) -> RowFormat | None:
        """What its input is quantised as, if it is."""
        return row_format(self.gate_proj.matrix, self.up_proj.matrix)

    def forward(self, x: Rows, context: ForwardContext) -> Tensor:
        """[T, C] -> [T, C]."""
        return self.project(*linears(x, context, self.gate_proj, self.up_proj), context)

    def project(self, gate: Tensor, up: Tensor, context: ForwardContext) -> Tensor:
        """What `forward` makes of the products with the first two matrices."""
        form = row_format(self.down_proj.matrix)
        inner: Rows = ops.swiglu(gate, up) if form is None else ops.shared_swiglu(gate, up, form)
        return self.down_proj(inner, context)


class Experts(nn.Module):
    """All routed experts of a layer."""

    def __init__(self, sizes: ExpertSizes, factory: ParameterFactory) -> None:
        """Registers the method's parameters."""
        super().__init__()
        self.sizes = sizes
        self.method: ExpertsMethod = UnquantizedExperts()
        self.method.create(self, sizes, factory)

    @property
    def matrices(self) -> tuple[Any, Any] | None:
        """What `ops.moe_experts` multiplies with, where it is all that a call does; None otherwise."""
        return None if self._forward_pre_hooks or self._forward_hooks else self.method.matrices(self)

    def forward(self, x: Rows, expert_ids: Tensor, context: ForwardContext) -> Tensor:
        """Unweighted results [T, K, C] of x [T, C] and expert_ids [T, K]."""
        return self.method.apply(self, x, expert_ids, context)


class MoeMLP(nn.Module):
    """Router, routed experts, and in Qwen3.5 a shared expert that every token takes, scaled by its own gate.

    Tensor parallelism cuts every expert inside, the shared one too, so that the ranks always have equal work; what they
    have each is combined first and then added over the ranks once.
    """

    def __init__(self, hidden_size: int, config: MoeConfig, factory: ParameterFactory) -> None:
        """Registers router and experts."""
        super().__init__()
        self._group = factory.group
        self.top_k, self.renormalise = config.top_k, config.norm_topk_prob
        sizes = ExpertSizes(config.num_experts, hidden_size, config.expert_intermediate_size)
        self.gate = ReplicatedLinear(hidden_size, config.num_experts, factory)
        self.experts = Experts(sizes, factory)
        self.shared_expert: DenseMLP | None = None
        self.shared_expert_gate: ReplicatedLinear | None = None
        if config.shared_expert_intermediate_size:
            self.shared_expert = DenseMLP(
                hidden_size, config.shared_expert_intermediate_size, factory, is_reduced=False
            )
            self.shared_expert_gate = ReplicatedLinear(hidden_size, 1, factory)

    @property
    def row_format(self) -> RowFormat | None:
        """What its input is quantised as, if it is."""
        own = row_format(*(self.experts.matrices or ())[:1])
        return self.shared_expert.row_format if own is None and self.shared_expert else own

    def forward(self, x: Rows, context: ForwardContext) -> Tensor:
        """[T, C] -> [T, C]."""
        if self.shared_expert is None or self.shared_expert_gate is None:
            scores, shared = self.gate(x, context), None
        else:
            expert = self.shared_expert
            scores, scale, gate, up = linears(
                x, context, self.gate, self.shared_expert_gate, expert.gate_proj, expert.up_proj
            )
            shared = SharedExpert(gate, up, expert.down_proj.matrix, scale)
        weights, expert_ids = ops.moe_route(scores, self.top_k, self.renormalise)
        matrices = self.experts.matrices
        # Every rank has a part of every expert, so nothing is exchanged between experts and sum.
        if matrices is not None and (shared is None or shared.down is not None):
            return self._group.all_reduce(ops.moe_mixture(x, expert_ids, weights, *matrices, shared))
        routed = self.experts(x, expert_ids, context)
        if shared is None or self.shared_expert is None:
            return self._group.all_reduce(ops.moe_combine(routed, weights, None, None))
        own = self.shared_expert.project(shared.gate, shared.up, context)
        return self._group.all_reduce(ops.moe_combine(routed, weights, own, shared.scale))
