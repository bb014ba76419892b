"""The parts of a model's shape: rotary embedding, experts, gated delta net, and how they are read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from qanat.config.json_section import JsonSection
from qanat.core.errors import CheckpointError

ROPE_SHAPE_KEYS = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
"""Keys of a rotary section that tell how the model was trained, not how its window is extended."""


@dataclass(frozen=True)
class YarnConfig:
    """Context extension by YaRN (Peng et al. 2023, "YaRN: Efficient Context Window Extension of LLMs").

    Attributes:
        factor: how many times longer the window becomes.
        original_max_position_embeddings: window of the pre-trained model, in tokens.
        beta_fast, beta_slow: rotations within the original window between which frequencies are blended.
        attention_factor: multiplies cos and sin; 0.1 ln(factor) + 1 unless the file says otherwise.
        truncate: round the bounds of the blend to whole frequency indices.
    """

    factor: float
    original_max_position_embeddings: int
    beta_fast: float
    beta_slow: float
    attention_factor: float
    truncate: bool


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding.

    Attributes:
        theta: base of the frequencies.
        rotary_dim: how many leading dimensions of a head rotate.
        mrope_section: frequencies taken from (time, height, width) positions, interleaved; None for plain.
        scaling: YaRN, or None for plain rotary embedding.
    """

    theta: float
    rotary_dim: int
    mrope_section: tuple[int, int, int] | None
    scaling: YarnConfig | None


@dataclass(frozen=True)
class MoeConfig:
    """Mixture of experts.

    Attributes:
        num_experts: routed experts of a layer.
        top_k: experts that a token is sent to.
        expert_intermediate_size: inner width of a routed expert.
        shared_expert_intermediate_size: inner width of the shared expert; 0 if there is none.
        norm_topk_prob: scale the chosen experts' probabilities to sum to one.
        decoder_sparse_step: every so many layers have experts.
        mlp_only_layers: layers that are dense whatever the step says.
    """

    num_experts: int
    top_k: int
    expert_intermediate_size: int
    shared_expert_intermediate_size: int
    norm_topk_prob: bool
    decoder_sparse_step: int
    mlp_only_layers: tuple[int, ...]


@dataclass(frozen=True)
class GatedDeltaNetConfig:
    """Sizes of the linear-attention layers.

    Attributes:
        num_key_heads, num_value_heads: value head j reads key head j // (num_value_heads / num_key_heads).
        key_head_dim, value_head_dim: rows and columns of a head's recurrent state.
        conv_kernel_dim: taps of the causal convolution; one fewer past inputs are kept as state.
    """

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel_dim: int

    @property
    def key_dim(self) -> int:
        """Width of all query heads, and of all key heads."""
        return self.num_key_heads * self.key_head_dim

    @property
    def value_dim(self) -> int:
        """Width of all value heads."""
        return self.num_value_heads * self.value_head_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return 2 * self.key_dim + self.value_dim


def parse_moe(text: JsonSection, family: str) -> MoeConfig:
    """The experts of a `qwen3_moe` or `qwen3_5_moe` text config."""
    qwen3 = family == "qwen3_moe"
    config = MoeConfig(
        # Newer exports of Qwen3-MoE write the second name.
        num_experts=text.integer("num_experts", text.get("num_local_experts")),
        top_k=text.integer("num_experts_per_tok"),
        expert_intermediate_size=text.integer("moe_intermediate_size"),
        shared_expert_intermediate_size=0 if qwen3 else text.integer("shared_expert_intermediate_size"),
        # Qwen3.5 always renormalises and its decoder has experts in every layer, whatever the file says.
        norm_topk_prob=text.boolean("norm_topk_prob", False) if qwen3 else True,
        decoder_sparse_step=text.integer("decoder_sparse_step", 1) if qwen3 else 1,
        mlp_only_layers=text.integers("mlp_only_layers") if qwen3 else (),
    )
    if config.top_k > config.num_experts:
        raise CheckpointError(
            f"{text.where}: num_experts_per_tok ({config.top_k}) exceeds num_experts ({config.num_experts})"
        )
    return config


def parse_gated_delta_net(text: JsonSection) -> GatedDeltaNetConfig:
    """The linear-attention sizes of a `qwen3_5` or `qwen3_5_moe` text config."""
    config = GatedDeltaNetConfig(
        num_key_heads=text.integer("linear_num_key_heads"),
        num_value_heads=text.integer("linear_num_value_heads"),
        key_head_dim=text.integer("linear_key_head_dim"),
        value_head_dim=text.integer("linear_value_head_dim"),
        conv_kernel_dim=text.integer("linear_conv_kernel_dim", 4, minimum=2),
    )
    if config.num_value_heads % config.num_key_heads:
        raise CheckpointError(
            f"{text.where}: linear_num_value_heads ({config.num_value_heads}) is not a multiple of "
            f"linear_num_key_heads ({config.num_key_heads})"
        )
    return config


def parse_rope(text: JsonSection, head_dim: int, default_fraction: float) -> RopeConfig:
    """Merges `rope_parameters` (new) or `rope_scaling` (old) with the flat keys beside them."""
    rope = _rope_section(text)
    flat_fraction = text.number("partial_rotary_factor", default_fraction)
    rotary_dim = int(head_dim * rope.number("partial_rotary_factor", flat_fraction))
    if rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
        raise CheckpointError(
            f"{rope.where}: {rotary_dim} rotary dimensions of head_dim {head_dim} are not possible"
        )
    section = rope.integers("mrope_section")
    if section and (len(section) != 3 or not rope.boolean("mrope_interleaved", False)):
        raise CheckpointError(f"{rope.where}: mrope_section needs three counts and mrope_interleaved true")
    theta = rope.get("rope_theta", text.get("rope_theta"))
    return RopeConfig(
        theta=JsonSection({"rope_theta": theta}, rope.where).number("rope_theta"),
        rotary_dim=rotary_dim,
        mrope_section=(section[0], section[1], section[2]) if section else None,
        scaling=_yarn(rope, text),
    )


def _rope_section(text: JsonSection) -> JsonSection:
    """`rope_scaling` if it says anything, else `rope_parameters`: transformers 5.24 chooses in this order.

    There the first replaces the second whole, and a base that only the second names falls back to 10,000, with which
    no Qwen model was trained; here what describes the model itself is kept.
    """
    parameters = text.section("rope_parameters") or JsonSection({}, text.where)
    scaling = text.section("rope_scaling")
    if scaling is None or not scaling.values:
        return parameters
    kept = {key: parameters.get(key) for key in ROPE_SHAPE_KEYS if text.get(key) is None}
    given = {key: value for key, value in scaling.values.items() if value is not None}
    return JsonSection({**kept, **given}, scaling.where)


def _yarn(rope: JsonSection, text: JsonSection) -> YarnConfig | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in ("default", "mrope"):
        return None
    if kind != "yarn":
        raise CheckpointError(f"{rope.where}: rope_type {kind!r} is not supported, only 'default' and 'yarn'")
    original = rope.integer("original_max_position_embeddings", text.integer("max_position_embeddings"))
    factor = rope.number("factor")
    if rope.get("attention_factor") is not None:
        attention_factor = rope.number("attention_factor")
    elif rope.get("mscale") and rope.get("mscale_all_dim"):
        attention_factor = _mscale(factor, rope.number("mscale")) / _mscale(
            factor, rope.number("mscale_all_dim")
        )
    else:
        attention_factor = _mscale(factor, 1.0)
    return YarnConfig(
        factor=factor,
        original_max_position_embeddings=original,
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        attention_factor=attention_factor,
        truncate=rope.boolean("truncate", True),
    )


def _mscale(factor: float, weight: float) -> float:
    """YaRN's attention temperature for a given extension."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0
