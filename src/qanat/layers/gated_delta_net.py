"""Linear attention: causal convolution, gated delta rule, gated norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from qanat.config.model_config import GatedDeltaNetConfig
from qanat.config.sharding import rank_gdn
from qanat.kernels import ops
from qanat.kernels.rows import RowFormat, Rows, row_format
from qanat.layers.context import ForwardContext
from qanat.layers.linear import ColumnParallelLinear, RowParallelLinear, linears
from qanat.layers.norm import GatedRMSNorm
from qanat.quant.parameter import ParameterFactory, ParameterInfo


def _sections(config: GatedDeltaNetConfig) -> tuple[int, ...]:
    """Queries, keys and values, which are split each on their own."""
    return config.key_dim, config.key_dim, config.value_dim


def _num_units(config: GatedDeltaNetConfig) -> tuple[int, ...]:
    """Heads in each section."""
    return config.num_key_heads, config.num_key_heads, config.num_value_heads


class DepthwiseConv(nn.Module):
    """Holder of the convolution's `weight` [channels, 1, taps], shaped as checkpoints store it."""

    def __init__(self, config: GatedDeltaNetConfig, factory: ParameterFactory) -> None:
        """Registers `weight`; tensor parallelism splits queries, keys and values each on their own."""
        super().__init__()
        info = ParameterInfo(
            0,
            _sections(config),
            _num_units(config),
            dummy_std=config.conv_kernel_dim**-0.5,
            is_channel_last=True,
        )
        self.weight = factory.make((config.conv_dim, 1, config.conv_kernel_dim), info)


class GatedDeltaNet(nn.Module):
    """The mixer of "linear_attention" layers. Its state does not grow with the sequence.

    Args:
        hidden_size: width of the residual stream.
        config: head counts and sizes of the whole model; tensor parallelism splits by head.
        eps: of the gated norm.
        state_index: which entries of the context's conv and recurrent states are this layer's.
    """

    def __init__(
        self,
        hidden_size: int,
        config: GatedDeltaNetConfig,
        eps: float,
        state_index: int,
        factory: ParameterFactory,
    ) -> None:
        """Registers the parameters."""
        super().__init__()
        self.config, self.state_index = rank_gdn(config, factory.group.size), state_index
        heads = config.num_value_heads
        self.in_proj_qkv = ColumnParallelLinear(
            hidden_size, config.conv_dim, factory, _sections(config), _num_units(config)
        )
        self.in_proj_z = ColumnParallelLinear(hidden_size, config.value_dim, factory, num_units=(heads,))
        self.in_proj_b = ColumnParallelLinear(hidden_size, heads, factory)
        self.in_proj_a = ColumnParallelLinear(hidden_size, heads, factory)
        self.conv1d = DepthwiseConv(config, factory)
        # fp32 whatever the model's type: exp(A_log) scales every decay, so its rounding would add up over time.
        self.A_log = factory.make((heads,), ParameterInfo(0, dummy_mean=0.5, dummy_std=0.5), torch.float32)
        self.dt_bias = factory.make((heads,), ParameterInfo(0, dummy_mean=-1.0, dummy_std=0.5))
        self.norm = GatedRMSNorm(config.value_head_dim, eps, factory)
        self.out_proj = RowParallelLinear(config.value_dim, hidden_size, factory, num_heads=heads)

    @property
    def row_format(self) -> RowFormat | None:
        """What its input is quantised as, if it is."""
        return row_format(self.in_proj_qkv.matrix, self.in_proj_z.matrix)

    def forward(self, x: Rows, context: ForwardContext) -> Tensor:
        """[T, C] -> [T, C]."""
        qkv, z, a, b = linears(x, context, self.in_proj_qkv, self.in_proj_z, self.in_proj_a, self.in_proj_b)
        attended = self._mix(qkv, a, b, context)
        gated = self.norm.shared(attended, z.view(attended.shape), row_format(self.out_proj.matrix))
        return self.out_proj(gated, context)

    def absorb(self, context: ForwardContext) -> None:
        """Brings the states of a context without rows to where the accepted ones of their held rows have passed."""
        weight, config = self.conv1d.weight, self.config
        gates = weight.new_empty(0, config.num_value_heads)
        self._mix(weight.new_empty(0, config.conv_dim), gates, gates, context)

    def _mix(self, mixed: Tensor, a: Tensor, b: Tensor, context: ForwardContext) -> Tensor:
        held = None if context.held is None else context.held.of_layer(self.state_index)
        return ops.gated_delta_net(
            mixed,
            a,
            b,
            self.conv1d.weight.squeeze(1),
            self.A_log,
            self.dt_bias,
            context.conv_states[self.state_index],
            context.recurrent_states[self.state_index],
            context.state_ids,
            context.num_computed,
            context.host_query_lens,
            held,
            context.stores,
        )
