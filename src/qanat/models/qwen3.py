"""Qwen3, dense and mixture of experts: full attention everywhere, plain norms, no shared expert."""

from __future__ import annotations

from torch import nn

from qanat.config.model_config import ModelConfig
from qanat.core.errors import CheckpointError
from qanat.layers.attention import FullAttention
from qanat.layers.mlp import DenseMLP, MoeMLP
from qanat.layers.norm import RMSNorm
from qanat.models.decoder import DecoderLayer
from qanat.models.weights import DropRule, ExpertStack, WeightMap
from qanat.quant.parameter import ParameterFactory

WEIGHTS = WeightMap(
    prefixes=(("model.", "model."), ("lm_head.", "lm_head.")),
    drops=(DropRule("frequencies", r"\.rotary_emb\.inv_freq$", "computed from config.json"),),
    expert_stack=ExpertStack(),
)


class Qwen3Family:
    """Builds the layers of `qwen3` and `qwen3_moe`."""

    zero_centred_norms = False
    weight_map = WEIGHTS

    def layer(self, config: ModelConfig, index: int, factory: ParameterFactory) -> DecoderLayer:
        """Builds decoder layer `index`; every layer has its own KV cache."""
        mixer = FullAttention(config, index, self.zero_centred_norms, factory)
        return DecoderLayer(
            "self_attn", mixer, feed_forward(config, index, factory), norms(config, False, factory)
        )

    def draft_layer(self, config: ModelConfig, factory: ParameterFactory) -> DecoderLayer:
        """There is none.

        Raises:
            CheckpointError: always.
        """
        raise CheckpointError(f"{config.architecture} has no multi-token-prediction layer")


def feed_forward(config: ModelConfig, index: int, factory: ParameterFactory) -> nn.Module:
    """The feed-forward part of layer `index`: experts where the config says so, dense elsewhere."""
    if config.moe is not None and config.is_moe_layer(index):
        return MoeMLP(config.hidden_size, config.moe, factory)
    return DenseMLP(config.hidden_size, config.intermediate_size, factory)


def norms(config: ModelConfig, zero_centred: bool, factory: ParameterFactory) -> tuple[RMSNorm, RMSNorm]:
    """The two norms of a layer."""
    first, second = (
        RMSNorm(config.hidden_size, config.rms_norm_eps, zero_centred, factory) for _ in range(2)
    )
    return first, second
