"""Qwen3.5 and Qwen3.6, dense and mixture of experts: gated delta net and gated attention layers, 3 to 1."""

from __future__ import annotations

from torch import nn

from qanat.config.model_config import LINEAR_ATTENTION, ModelConfig
from qanat.layers.attention import FullAttention
from qanat.layers.gated_delta_net import GatedDeltaNet
from qanat.layers.mlp import DenseMLP, MoeMLP
from qanat.models.decoder import DecoderLayer
from qanat.models.qwen3 import feed_forward, norms
from qanat.models.weights import DropRule, ExpertStack, WeightMap
from qanat.quant.parameter import ParameterFactory

WEIGHTS = WeightMap(
    prefixes=(
        ("model.language_model.", "model."),
        ("language_model.model.", "model."),
        ("language_model.lm_head.", "lm_head."),
        ("model.", "model."),
        ("lm_head.", "lm_head."),
    ),
    drops=(
        DropRule("vision", r"^(model\.)?visual\.", "images are not served in this version"),
        DropRule("mtp", r"^mtp\.", "no drafts are asked for"),
        DropRule("frequencies", r"\.rotary_emb\.inv_freq$", "computed from config.json"),
    ),
    expert_stack=ExpertStack(),
)


class Qwen35Family:
    """Builds the layers of `qwen3_5` and `qwen3_5_moe`."""

    zero_centred_norms = True
    weight_map = WEIGHTS

    def layer(self, config: ModelConfig, index: int, factory: ParameterFactory) -> DecoderLayer:
        """Builds decoder layer `index`; cache and state indices count the layers of the same kind before it."""
        kind = config.layer_types[index]
        kind_index = config.layer_types[:index].count(kind)
        name, mixer = self._mixer(config, kind, kind_index, factory)
        mlp = feed_forward(config, index, factory)
        return DecoderLayer(name, mixer, mlp, norms(config, self.zero_centred_norms, factory))

    def draft_layer(self, config: ModelConfig, factory: ParameterFactory) -> DecoderLayer:
        """Builds the draft layer: full attention, with experts if the model has any."""
        mixer = FullAttention(config, 0, self.zero_centred_norms, factory)
        mlp: nn.Module
        if config.moe is not None:
            mlp = MoeMLP(config.hidden_size, config.moe, factory)
        else:
            mlp = DenseMLP(config.hidden_size, config.intermediate_size, factory)
        return DecoderLayer("self_attn", mixer, mlp, norms(config, self.zero_centred_norms, factory))

    def _mixer(
        self, config: ModelConfig, kind: str, kind_index: int, factory: ParameterFactory
    ) -> tuple[str, nn.Module]:
        if kind == LINEAR_ATTENTION and config.gdn is not None:
            mixer = GatedDeltaNet(config.hidden_size, config.gdn, config.rms_norm_eps, kind_index, factory)
            return "linear_attn", mixer
        return "self_attn", FullAttention(config, kind_index, self.zero_centred_norms, factory)
