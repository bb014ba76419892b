"""Naming rules of both families."""

from __future__ import annotations

import pytest
import torch

from qanat.models.qwen3 import WEIGHTS as QWEN3
from qanat.models.qwen3_5 import WEIGHTS as QWEN3_5
from qanat.models.weights import DropRule, Part, Target

PREFIX = "model.language_model.layers.0."


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("model.language_model.norm.weight", "model.norm.weight"),
        ("model.norm.weight", "model.norm.weight"),
        ("language_model.model.norm.weight", "model.norm.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        (PREFIX + "linear_attn.A_log", "model.layers.0.linear_attn.A_log"),
        (PREFIX + "mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.gate_up_proj"),
        (PREFIX + "mlp.shared_expert.up_proj.weight", "model.layers.0.mlp.shared_expert.up_proj.weight"),
    ],
)
def test_whole_parameters(name: str, parameter: str) -> None:
    assert QWEN3_5.resolve(name) == Target(parameter)


@pytest.mark.parametrize(
    ("matrix", "kind", "part"),
    [
        ("gate_proj", "gate_up_proj", Part(17, 0, 2)),
        ("up_proj", "gate_up_proj", Part(17, 1, 2)),
        ("down_proj", "down_proj", Part(17, 0, 1)),
    ],
)
def test_one_expert(matrix: str, kind: str, part: Part) -> None:
    expected = Target(f"model.layers.0.mlp.experts.{kind}", part)
    assert QWEN3_5.resolve(f"{PREFIX}mlp.experts.17.{matrix}.weight") == expected
    assert QWEN3.resolve(f"model.layers.0.mlp.experts.17.{matrix}.weight") == expected


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("model.visual.patch_embed.proj.bias", "vision"),
        ("visual.merger.norm.weight", "vision"),
        ("mtp.layers.0.mlp.experts.3.up_proj.weight", "mtp"),
        ("mtp.fc.weight", "mtp"),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", "frequencies"),
    ],
)
def test_dropped_by_a_named_rule(name: str, rule: str) -> None:
    found = QWEN3_5.resolve(name)
    assert isinstance(found, DropRule)
    assert found.name == rule


@pytest.mark.parametrize(
    "name", ["transformer.h.0.weight", "mtpx.weight", PREFIX + "mlp.experts.1.gate_proj.weight_scale"]
)
def test_other_names_are_no_parameter_of_any_model(name: str) -> None:
    target = QWEN3_5.resolve(name)
    assert target is None or (isinstance(target, Target) and target.parameter.endswith("weight_scale"))


def test_qwen3_drops_neither_vision_nor_mtp() -> None:
    assert QWEN3.resolve("mtp.fc.weight") is None
    assert not isinstance(QWEN3.resolve("model.visual.blocks.0.norm1.bias"), DropRule)


def test_parts_cover_a_stacked_parameter_exactly_once() -> None:
    assert QWEN3.expert_stack is not None
    stacked = torch.zeros(3, 8, 5)
    for part in QWEN3.expert_stack.parts("model.layers.0.mlp.experts.gate_up_proj", 3):
        part.of(stacked).add_(1)
    assert torch.equal(stacked, torch.ones(3, 8, 5))
    assert QWEN3.expert_stack.parts("model.layers.0.mlp.down_proj", 3) == {}


def test_missing_tensors_are_named_as_the_checkpoint_names_them() -> None:
    own = "model.layers.1.mlp.down_proj.weight"
    nested, flat = ["model.language_model.norm.weight"], ["model.norm.weight"]
    assert QWEN3_5.name_in_checkpoint(own, nested) == "model.language_model.layers.1.mlp.down_proj.weight"
    assert QWEN3_5.name_in_checkpoint(own, flat) == own
    assert QWEN3_5.name_in_checkpoint(own, []) == own
