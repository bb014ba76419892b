"""Frequencies and rows against transformers, YaRN included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextRotaryEmbedding

from qanat.config.model_config import ModelConfig
from qanat.layers.rotary import RotaryEmbedding, inverse_frequencies

FLAT = {
    "architectures": ["Qwen3ForCausalLM"], "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 96,
    "max_position_embeddings": 40960,
}  # fmt: skip
HYBRID = {
    **FLAT, "architectures": ["Qwen3_5ForCausalLM"], "head_dim": 256, "linear_num_key_heads": 2,
    "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "max_position_embeddings": 262144,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
AXES = {"mrope_section": [11, 11, 10], "mrope_interleaved": True, "partial_rotary_factor": 0.25}

SETTINGS = {
    "plain": {"rope_type": "default"},
    "yarn": YARN,
    "yarn, other bounds": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn, bounds not rounded": {**YARN, "truncate": False},
    "yarn, own attention factor": {**YARN, "attention_factor": 1.3},
    "yarn, mscale": {**YARN, "mscale": 0.8, "mscale_all_dim": 0.5},
    "yarn, factor below one": {**YARN, "factor": 0.5},
}
POSITIONS = torch.tensor([[0, 1, 77, 4095, 32768, 131071]])


def flat(rope: dict[str, Any]) -> tuple[ModelConfig, Any]:
    parameters = {**rope, "rope_theta": 1_000_000.0}
    ours = ModelConfig.from_dict({**FLAT, "rope_parameters": parameters})
    sizes = {key: value for key, value in FLAT.items() if key != "architectures"}
    return ours, Qwen3RotaryEmbedding(transformers.Qwen3Config(**sizes, rope_parameters=parameters))


def hybrid(rope: dict[str, Any]) -> tuple[ModelConfig, Any]:
    parameters = {**AXES, **rope, "rope_theta": 10_000_000.0}
    ours = ModelConfig.from_dict({**HYBRID, "rope_parameters": parameters})
    sizes = {key: value for key, value in HYBRID.items() if key != "architectures"}
    theirs = transformers.Qwen3_5TextConfig(**sizes, rope_parameters=parameters)
    return ours, Qwen3_5TextRotaryEmbedding(theirs)


@pytest.mark.parametrize("make", [flat, hybrid])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_equal_those_of_transformers(make: Any, name: str, dtype: torch.dtype) -> None:
    config, theirs = make(SETTINGS[name])
    rotary = RotaryEmbedding(config.rope, dtype)
    torch.testing.assert_close(rotary.inverse_frequencies, theirs.inv_freq, rtol=1e-6, atol=0)
    assert rotary.scale == pytest.approx(theirs.attention_scaling)
    cos, sin = rotary.rows(POSITIONS)
    expected_cos, expected_sin = theirs(torch.zeros(1, dtype=dtype), POSITIONS)
    half = config.rope.rotary_dim // 2
    torch.testing.assert_close(cos, expected_cos[0, :, :half], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(sin, expected_sin[0, :, :half], rtol=1e-4, atol=1e-4)


def test_image_positions_equal_those_of_transformers() -> None:
    config, theirs = hybrid({"rope_type": "default"})
    positions = torch.tensor([[7, 7, 7, 9], [7, 8, 31, 9], [7, 12, 40, 9]])
    cos, sin = RotaryEmbedding(config.rope, torch.float32).rows(positions)
    expected_cos, expected_sin = theirs(torch.zeros(1), positions.unsqueeze(1))
    torch.testing.assert_close(cos, expected_cos[0, :, :32])
    torch.testing.assert_close(sin, expected_sin[0, :, :32])


def test_yarn_keeps_the_fast_frequencies_and_stretches_the_slow_ones() -> None:
    plain, _ = flat({"rope_type": "default"})
    long, _ = flat(YARN)
    ratio = inverse_frequencies(plain.rope) / inverse_frequencies(long.rope)
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(4, rel=1e-5)
    assert (ratio.diff() >= -1e-5).all()


def test_frequencies_stay_fp32_in_a_bf16_model() -> None:
    config, _ = flat({"rope_type": "default"})
    assert RotaryEmbedding(config.rope, torch.bfloat16).inverse_frequencies.dtype == torch.float32
