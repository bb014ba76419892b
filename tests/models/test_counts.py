"""Every known config builds on the meta device with exactly the tensors that its checkpoint has.

Published totals are those of the official checkpoints' indices (Qwen3.5) and model cards (Qwen3). The text part is
counted by building it, the multi-token-prediction layer by building its decoder layer and adding the four tensors
around it, the vision tower by the formula of its tensor list: this version has no code for it.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from qanat.config.model_config import ModelConfig
from qanat.core.errors import CheckpointError
from qanat.models.qwen3_5 import Qwen35Family
from qanat.models.registry import build_model
from qanat.quant.parameter import ParameterFactory

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
META = ParameterFactory(torch.bfloat16, torch.device("meta"))

Shapes = dict[str, tuple[int, ...]]

# file -> (parameters, tensors, bytes) with vision and MTP; bytes None where no total was published.
PUBLISHED_3_5 = {
    "Qwen3.5-0.8B": (873_438_784, 488, 1_746_882_752),
    "Qwen3.5-2B": (2_274_069_824, 632, 4_548_144_832),
    "Qwen3.5-4B": (4_659_865_088, 738, 9_319_737_856),
    "Qwen3.5-9B": (9_653_104_368, 775, 19_306_216_416),
    "Qwen3.5-27B": (27_781_427_952, 1_199, None),
    "Qwen3.6-27B": (27_781_427_952, 1_199, 55_562_855_904),
    "nvidia-Qwen3.6-27B-NVFP4": (27_781_427_952, 1_199, None),
    "Qwen3.5-35B-A3B": (35_951_822_704, 1_811, 71_903_655_008),
    "Qwen3.6-35B-A3B": (35_951_822_704, 1_045, 71_903_645_408),
    "nvidia-Qwen3.6-35B-A3B-NVFP4": (35_951_822_704, 1_045, None),
    "Qwen3.5-122B-A10B": (125_086_497_008, 1_949, 250_173_007_840),
    "Qwen3.5-397B-A17B": (403_397_928_944, 2_924, 806_795_875_168),
}

# file -> parameters in units of 10^9, as published
PUBLISHED_3 = {
    "Qwen3-0.6B": 0.596,
    "Qwen3-1.7B": 1.721,
    "Qwen3-8B": 8.191,
    "Qwen3-14B": 14.768,
    "Qwen3-32B": 32.762,
    "Qwen3-32B-FP8": 32.762,
    "Qwen3-32B-FP8-Static-PerTensor": 32.762,
    "Qwen3-30B-A3B": 30.532,
    "Qwen3-30B-A3B-FP8": 30.532,
    "Qwen3-235B-A22B": 235.09,
    "Qwen3-235B-A22B-FP8": 235.09,
}

DRAFTERS = [
    "Qwen3-235B-A22B-eagle3.specforge-train",
    "Qwen3-32B-eagle3.angelslim-train",
    "Qwen3-32B-eagle3.specforge-train",
]


def read(name: str) -> dict[str, Any]:
    return json.loads((CONFIGS / f"{name}.json").read_text())


def built(config: ModelConfig) -> Shapes:
    model = build_model(config, torch.bfloat16, "meta")
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def attention(c: dict[str, Any], gated: bool) -> Shapes:
    heads, kv, dim, hidden = (
        c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["hidden_size"],
    )  # fmt: skip
    return {
        "q_proj.weight": ((2 if gated else 1) * heads * dim, hidden),
        "k_proj.weight": (kv * dim, hidden),
        "v_proj.weight": (kv * dim, hidden),
        "o_proj.weight": (hidden, heads * dim),
        "q_norm.weight": (dim,),
        "k_norm.weight": (dim,),
    }


def delta_net(c: dict[str, Any]) -> Shapes:
    hidden, heads = c["hidden_size"], c["linear_num_value_heads"]
    keys, values = c["linear_num_key_heads"] * c["linear_key_head_dim"], heads * c["linear_value_head_dim"]
    return {
        "in_proj_qkv.weight": (2 * keys + values, hidden),
        "in_proj_z.weight": (values, hidden),
        "in_proj_b.weight": (heads, hidden),
        "in_proj_a.weight": (heads, hidden),
        "conv1d.weight": (2 * keys + values, 1, c["linear_conv_kernel_dim"]),
        "A_log": (heads,),
        "dt_bias": (heads,),
        "norm.weight": (c["linear_value_head_dim"],),
        "out_proj.weight": (hidden, values),
    }


def swiglu(hidden: int, inner: int) -> Shapes:
    return {
        "gate_proj.weight": (inner, hidden),
        "up_proj.weight": (inner, hidden),
        "down_proj.weight": (hidden, inner),
    }


def feed_forward(c: dict[str, Any]) -> Shapes:
    hidden, experts = c["hidden_size"], c.get("num_experts", 0)
    if not experts:
        return swiglu(hidden, c["intermediate_size"])
    inner = c["moe_intermediate_size"]
    shapes: Shapes = {
        "gate.weight": (experts, hidden),
        "experts.gate_up_proj": (experts, 2 * inner, hidden),
        "experts.down_proj": (experts, hidden, inner),
    }
    if shared := c.get("shared_expert_intermediate_size"):
        shapes |= {f"shared_expert.{name}": shape for name, shape in swiglu(hidden, shared).items()}
        shapes["shared_expert_gate.weight"] = (1, hidden)
    return shapes


def text_model(raw: dict[str, Any]) -> Shapes:
    """The tensor list of the published checkpoints, experts stacked, under our prefix."""
    c = raw.get("text_config", raw)
    table = (c["vocab_size"], c["hidden_size"])
    shapes: Shapes = {"model.embed_tokens.weight": table, "model.norm.weight": (c["hidden_size"],)}
    if not raw.get("tie_word_embeddings", c.get("tie_word_embeddings")):
        shapes["lm_head.weight"] = table
    hybrid = "linear_num_key_heads" in c
    for layer in range(c["num_hidden_layers"]):
        is_linear = hybrid and (layer + 1) % 4 != 0
        parts = {
            "input_layernorm": {"weight": (c["hidden_size"],)},
            "post_attention_layernorm": {"weight": (c["hidden_size"],)},
            "mlp": feed_forward(c),
            "linear_attn" if is_linear else "self_attn": delta_net(c) if is_linear else attention(c, hybrid),
        }
        for part, names in parts.items():
            shapes |= {f"model.layers.{layer}.{part}.{name}": shape for name, shape in names.items()}
    return shapes


def vision_tower(v: dict[str, Any]) -> list[int]:
    """Sizes of all vision tensors: patch and position embedding, blocks, merger."""
    hidden, inner = v["hidden_size"], v["intermediate_size"]
    patch = v["in_channels"] * v["temporal_patch_size"] * v["patch_size"] ** 2
    block = [
        *(4 * [hidden]),  # two norms
        3 * hidden * hidden, 3 * hidden, hidden * hidden, hidden,  # attention
        inner * hidden, inner, hidden * inner, hidden,
    ]  # fmt: skip
    merged = hidden * v["spatial_merge_size"] ** 2
    merger = [hidden, hidden, merged * merged, merged, v["out_hidden_size"] * merged, v["out_hidden_size"]]
    table = v["num_position_embeddings"] * hidden
    return [hidden * patch, hidden, table, *(v["depth"] * block), *merger]


def mtp_layer(config: ModelConfig) -> list[int]:
    """Sizes of the tensors of the multi-token-prediction layer: always full attention."""
    only = replace(config, layer_types=("full_attention",), num_hidden_layers=1)
    layer = Qwen35Family().layer(only, 0, META)
    hidden = config.hidden_size
    around = [hidden * 2 * hidden, hidden, hidden, hidden]  # fc, two norms before it, the last norm
    return around + [parameter.numel() for parameter in layer.parameters()]


def names_of(shapes: Shapes, *endings: str) -> int:
    return sum(math.prod(shape) for name, shape in shapes.items() if name.endswith(endings))


@pytest.mark.parametrize("name", [*PUBLISHED_3_5, *PUBLISHED_3])
def test_tensors_are_those_of_the_checkpoint(name: str) -> None:
    raw = read(name)
    assert built(ModelConfig.from_dict(raw)) == text_model(raw)


@pytest.mark.parametrize("name", PUBLISHED_3_5)
def test_published_totals_of_qwen3_5(name: str) -> None:
    raw = read(name)
    config = ModelConfig.from_dict(raw)
    shapes = built(config)
    text = [math.prod(shape) for shape in shapes.values()]
    vision, mtp = vision_tower(raw["vision_config"]), mtp_layer(config)
    num_parameters, num_tensors, size_bytes = PUBLISHED_3_5[name]
    assert sum(text) + sum(vision) + sum(mtp) == num_parameters
    # Qwen3.5 stores the experts of its MTP layer one by one, Qwen3.6 stacked like all others.
    is_3_5 = name.startswith("Qwen3.5")
    one_by_one = 3 * config.moe.num_experts - 2 if config.moe is not None and is_3_5 else 0
    assert len(text) + len(vision) + len(mtp) + one_by_one == num_tensors
    if size_bytes is not None:
        wide = names_of(shapes, ".A_log", ".linear_attn.norm.weight") if is_3_5 else 0
        assert 2 * (num_parameters + wide) == size_bytes


@pytest.mark.parametrize("name", PUBLISHED_3)
def test_published_totals_of_qwen3(name: str) -> None:
    total = sum(math.prod(shape) for shape in built(ModelConfig.from_dict(read(name))).values())
    digits = 2 if PUBLISHED_3[name] > 200 else 3
    assert round(total / 1e9, digits) == PUBLISHED_3[name]


@pytest.mark.parametrize("name", DRAFTERS)
def test_drafter_configs_are_refused_by_name(name: str) -> None:
    raw = read(name)
    with pytest.raises(CheckpointError, match=raw["architectures"][0]) as caught:
        ModelConfig.from_dict(raw)
    assert "Qwen3_5ForConditionalGeneration" in caught.value.message


def test_every_config_is_counted() -> None:
    assert {path.stem for path in CONFIGS.glob("*.json")} == {*PUBLISHED_3_5, *PUBLISHED_3, *DRAFTERS}
