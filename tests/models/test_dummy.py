"""Random weights: any config runs, deterministically, with finite activations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from qanat.config.model_config import ModelConfig
from qanat.models.dummy import load_dummy
from tests.support.forward import ForwardRunner

CONFIGS = Path(__file__).parents[1] / "data" / "configs"


def small(name: str) -> ModelConfig:
    """A real config cut to four layers and a small vocabulary; widths stay as they are."""
    config = ModelConfig.from_dict(json.loads((CONFIGS / f"{name}.json").read_text()))
    moe = replace(config.moe, num_experts=16) if config.moe is not None else None
    return replace(config, vocab_size=2000, num_hidden_layers=4, layer_types=config.layer_types[:4], moe=moe)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("Qwen3-0.6B", torch.bfloat16),
        ("Qwen3-30B-A3B", torch.bfloat16),
        ("Qwen3.5-0.8B", torch.bfloat16),
        ("Qwen3.5-0.8B", torch.float16),
        ("Qwen3.5-0.8B", torch.float32),
        ("Qwen3.6-35B-A3B", torch.bfloat16),
    ],
)
def test_activations_stay_finite_and_tokens_differ(name: str, dtype: torch.dtype) -> None:
    model = load_dummy(small(name), dtype)
    first, second = ForwardRunner(model).step([("a", range(40)), ("b", [7, 3])])
    logits = torch.cat((first, second))
    assert logits.isfinite().all()
    assert len(set(logits.argmax(-1).tolist())) > 10


def test_same_seed_same_weights() -> None:
    config = replace(small("Qwen3.5-0.8B"), num_hidden_layers=1, layer_types=("full_attention",))
    models = [load_dummy(config, torch.bfloat16, seed) for seed in (1, 1, 2)]
    states = [dict(model.named_parameters()) for model in models]
    assert all(torch.equal(parameter, states[1][name]) for name, parameter in states[0].items())
    assert not torch.equal(states[0]["model.norm.weight"], states[2]["model.norm.weight"])


def test_no_two_rows_of_a_large_matrix_are_equal() -> None:
    config = replace(small("Qwen3-0.6B"), num_hidden_layers=1, layer_types=("full_attention",))
    table = load_dummy(config, torch.float32).model.embed_tokens.weight
    assert table.numel() > 2**20
    assert len(torch.unique(table, dim=0)) == len(table)
