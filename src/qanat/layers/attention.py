"""Full attention: per-head norms, rotary embedding, paged cache, and in Qwen3.5 an output gate."""

from __future__ import annotations

from torch import Tensor, nn

from qanat.config.model_config import ModelConfig
from qanat.config.sharding import rank_model
from qanat.kernels import ops
from qanat.kernels.rows import RowFormat, Rows, row_format
from qanat.layers.context import ForwardContext
from qanat.layers.linear import ColumnParallelLinear, RowParallelLinear, linears
from qanat.layers.norm import RMSNorm
from qanat.quant.parameter import ParameterFactory


class FullAttention(nn.Module):
    """Softmax attention with grouped query heads.

    With an output gate, `q_proj` has twice the rows: for each head first the query, then the gate.
    Tensor parallelism splits by head; a key-value head of which there are too few is held by several ranks.

    Args:
        config: the model.
        cache_index: which entry of `ForwardContext.kv_cache` is this layer's.
        zero_centred: flavour of the query and key norms; None for no such norms.
        num_inputs: width of a row that it reads; None for the model's.
    """

    def __init__(
        self,
        config: ModelConfig,
        cache_index: int,
        zero_centred: bool | None,
        factory: ParameterFactory,
        num_inputs: int | None = None,
    ) -> None:
        """Registers the parameters."""
        super().__init__()
        hidden, dim = config.hidden_size, config.head_dim
        num_inputs = num_inputs or hidden
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        own = rank_model(config, factory.group.size)
        self.num_heads, self.num_kv_heads = own.num_attention_heads, own.num_key_value_heads
        self.head_dim, self.scale, self.cache_index = dim, dim**-0.5, cache_index
        self.has_gate = config.attention_output_gate
        width = heads * dim
        q_width = width * 2 if self.has_gate else width
        self.q_proj = ColumnParallelLinear(num_inputs, q_width, factory, num_units=(heads,))
        self.k_proj = ColumnParallelLinear(num_inputs, kv_heads * dim, factory, num_units=(kv_heads,))
        self.v_proj = ColumnParallelLinear(num_inputs, kv_heads * dim, factory, num_units=(kv_heads,))
        self.o_proj = RowParallelLinear(width, hidden, factory, num_heads=heads)
        self.q_norm: RMSNorm | None = None
        self.k_norm: RMSNorm | None = None
        if zero_centred is not None:
            self.q_norm = RMSNorm(dim, config.rms_norm_eps, zero_centred, factory)
            self.k_norm = RMSNorm(dim, config.rms_norm_eps, zero_centred, factory)

    @property
    def row_format(self) -> RowFormat | None:
        """What its input is quantised as, if it is."""
        return row_format(self.q_proj.matrix, self.k_proj.matrix, self.v_proj.matrix)

    def forward(self, x: Rows, context: ForwardContext) -> Tensor:
        """[T, inputs] -> [T, C]."""
        num_rows = x.shape[0]
        q, k, v = linears(x, context, self.q_proj, self.k_proj, self.v_proj)
        q = q.view(num_rows, self.num_heads, -1)
        gate = None
        if self.has_gate:
            q, gate = q.chunk(2, -1)
        k, v = (each.view(num_rows, self.num_kv_heads, self.head_dim) for each in (k, v))
        kv_cache = context.kv_cache[self.cache_index]
        queries = ops.qk_norm_rotary_store(
            q,
            k,
            v,
            None if self.q_norm is None else self.q_norm.weight,
            None if self.k_norm is None else self.k_norm.weight,
            0.0 if self.q_norm is None else self.q_norm.eps,
            self.q_norm is not None and self.q_norm.zero_centred,
            context.cos,
            context.sin,
            kv_cache,
            context.slot_mapping,
            context.host_query_lens,
        )
        attended = ops.paged_attention(
            queries,
            gate,
            kv_cache,
            context.block_tables,
            context.host_query_lens,
            context.host_seq_lens,
            self.scale,
        )
        return self.o_proj(attended.flatten(1), context)
