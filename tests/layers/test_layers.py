"""What layers promise besides numbers: shard axes, head layout of the gate, shapes of parameters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from qanat.config.model_config import ModelConfig
from qanat.models.registry import build_model
from qanat.quant.parameter import WeightParameter

CONFIGS = Path(__file__).parents[1] / "data" / "configs"


def parameters(name: str) -> dict[str, WeightParameter]:
    config = ModelConfig.from_dict(json.loads((CONFIGS / f"{name}.json").read_text()))
    return dict(build_model(config, torch.bfloat16, "meta").named_parameters())


@pytest.mark.parametrize(
    ("ending", "axis"),
    [
        ("embed_tokens.weight", 0),
        ("lm_head.weight", 0),
        ("q_proj.weight", 0),
        ("k_proj.weight", 0),
        ("o_proj.weight", 1),
        ("q_norm.weight", None),
        ("input_layernorm.weight", None),
        ("in_proj_qkv.weight", 0),
        ("in_proj_z.weight", 0),
        ("conv1d.weight", 0),
        ("A_log", 0),
        ("dt_bias", 0),
        ("linear_attn.norm.weight", None),
        ("out_proj.weight", 1),
        ("mlp.gate.weight", None),
        ("experts.gate_up_proj", 1),
        ("experts.down_proj", 2),
        ("shared_expert.down_proj.weight", 1),
        ("shared_expert_gate.weight", None),
    ],
)
def test_shard_axes(ending: str, axis: int | None) -> None:
    found = [p for name, p in parameters("Qwen3.5-35B-A3B").items() if name.endswith(ending)]
    assert found
    assert all(parameter.info.shard_axis == axis for parameter in found)


def test_sections_cover_the_sharded_axis() -> None:
    """Queries, keys and values lie one after another and are split each on their own."""
    for name, parameter in parameters("Qwen3.5-35B-A3B").items():
        sections, axis = parameter.info.sections, parameter.info.shard_axis
        assert not sections or sum(sections) == parameter.shape[axis], name
    qkv = parameters("Qwen3.5-35B-A3B")["model.layers.0.linear_attn.in_proj_qkv.weight"]
    assert qkv.info.sections == (2048, 2048, 4096)


def test_only_the_log_decay_has_a_type_of_its_own() -> None:
    wide = {
        name.rpartition(".")[2] for name, p in parameters("Qwen3.5-0.8B").items() if p.dtype != torch.bfloat16
    }
    assert wide == {"A_log"}


def test_parameters_take_no_gradient() -> None:
    assert not any(parameter.requires_grad for parameter in parameters("Qwen3-0.6B").values())
