from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from qanat.config.model_config import ModelConfig
from qanat.config.sharding import check_size, possible_sizes, rank_model
from qanat.core.errors import ConfigError
from tests.config.tiny_folder import TINY_CONFIG

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
TINY = ModelConfig.from_dict(TINY_CONFIG)


def test_one_rank_holds_the_model_itself() -> None:
    assert rank_model(TINY, 1) is TINY


def test_four_ranks_hold_a_quarter_and_repeat_what_is_too_little() -> None:
    own = rank_model(TINY, 4)
    assert (own.num_attention_heads, own.num_key_value_heads, own.head_dim) == (1, 1, 16)
    assert own.gdn is not None and own.moe is not None
    assert (own.gdn.num_key_heads, own.gdn.num_value_heads, own.conv_dim) == (1, 1, 48)
    assert (own.moe.expert_intermediate_size, own.moe.shared_expert_intermediate_size) == (8, 8)
    assert (own.moe.num_experts, own.vocab_size, own.hidden_size) == (8, 320, 64)


@pytest.mark.parametrize(
    ("changes", "size", "reason"),
    [
        ({}, 3, "3 does not divide 4 attention heads"),
        ({"vocab_size": 321}, 2, "2 does not divide 321 rows of the vocabulary"),
        ({"moe_intermediate_size": 33}, 2, "33 rows of an expert"),
        ({"shared_expert_intermediate_size": 33}, 2, "33 rows of the shared expert"),
        ({"linear_num_value_heads": 6}, 4, "6 value heads of the delta net"),
        (
            {"num_attention_heads": 6, "num_key_value_heads": 3, "linear_num_value_heads": 6},
            2,
            "3 key-value heads can neither be divided nor repeated for 2 ranks",
        ),
    ],
)
def test_a_size_that_does_not_fit_is_refused_with_the_reason(
    changes: dict[str, int], size: int, reason: str
) -> None:
    model = ModelConfig.from_dict({**TINY_CONFIG, **changes})
    with pytest.raises(ConfigError, match=reason) as caught:
        check_size(model, size)
    works = ", ".join(map(str, possible_sizes(model)))
    assert f"Sizes that work: {works}." in caught.value.message
    for other in possible_sizes(model):
        check_size(model, other)


@pytest.mark.parametrize("name", ["Qwen3-0.6B", "Qwen3-30B-A3B", "Qwen3.5-0.8B", "Qwen3.5-35B-A3B"])
def test_released_models_can_be_shared_by_two_four_and_eight(name: str) -> None:
    model = ModelConfig.from_dict(json.loads((CONFIGS / f"{name}.json").read_text()))
    assert {1, 2, 4, 8} <= set(possible_sizes(model))


def test_dense_widths_count_too() -> None:
    dense = dataclasses.replace(TINY, moe=None, intermediate_size=97)
    with pytest.raises(ConfigError, match="97 rows of the feed-forward part"):
        check_size(dense, 2)
