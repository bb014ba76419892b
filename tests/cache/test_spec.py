from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from qanat.cache.spec import cache_spec
from qanat.config.model_config import ModelConfig

KIB = 1024

# Shape of Qwen3.5-0.8B: 18 gated-delta-net layers and 6 attention layers.
HYBRID: dict[str, Any] = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "dtype": "bfloat16",
    "eos_token_id": 248044,
    "head_dim": 256,
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 6,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "num_attention_heads": 8,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25},
    "tie_word_embeddings": True,
    "vocab_size": 248320,
}

DENSE: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "dtype": "bfloat16",
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}


@pytest.mark.parametrize("block_size", [16, 64, 128])
def test_c5_block_size_does_not_change_the_state_and_the_state_does_not_change_the_block(
    block_size: int,
) -> None:
    spec = cache_spec(ModelConfig.from_dict(HYBRID), block_size=block_size, kv_dtype="bfloat16")
    assert spec.block_bytes == 12 * KIB * block_size
    conv_bytes = 18 * 3 * (16 * 128 * 3) * 2
    recurrent_bytes = 18 * 16 * 128 * 128 * 4
    assert spec.state_bytes == conv_bytes + recurrent_bytes


def test_regions_of_a_hybrid_model() -> None:
    spec = cache_spec(ModelConfig.from_dict(HYBRID), block_size=64, kv_dtype="bfloat16")
    regions = {region.name: region for region in spec.regions}
    assert list(regions) == ["kv_blocks", "conv_state", "recurrent_state"]
    assert regions["kv_blocks"].unit_shape == (2, 64, 2, 256)
    assert regions["conv_state"].unit_shape == (3, 6144)
    assert regions["recurrent_state"].unit_shape == (16, 128, 128)
    assert [region.num_layers for region in spec.regions] == [6, 18, 18]
    # Tensor parallelism splits by head: KV heads, channels, value heads.
    assert [region.unit_shape[region.shard_axis] for region in spec.regions] == [2, 6144, 16]


def test_kv_dtype_holds_for_blocks_and_conv_but_the_recurrent_state_stays_float32() -> None:
    model = ModelConfig.from_dict(HYBRID)
    dtypes = {r.name: r.dtype for r in cache_spec(model, block_size=64, kv_dtype="float16").regions}
    assert dtypes == {"kv_blocks": "float16", "conv_state": "float16", "recurrent_state": "float32"}


def test_int8_holds_for_blocks_alone_and_each_head_has_a_scale() -> None:
    model = ModelConfig.from_dict(HYBRID)
    spec = cache_spec(model, block_size=64, kv_dtype="int8", conv_dtype="bfloat16")
    assert {r.name: r.dtype for r in spec.regions}["conv_state"] == "bfloat16"
    assert spec.block_bytes == 6 * 2 * 64 * 2 * (256 + 4)


def test_a_state_has_room_for_the_rows_that_are_verified() -> None:
    plain, held = (
        cache_spec(ModelConfig.from_dict(HYBRID), block_size=64, kv_dtype="bfloat16", num_held_rows=rows)
        for rows in (0, 4)
    )
    assert [region.name for region in held.regions][3:] == ["held_inputs", "held_gates"]
    assert held.state_bytes - plain.state_bytes == 18 * 4 * (6144 * 2 + 2 * 16 * 4)
    assert held.block_bytes == plain.block_bytes


def test_a_model_without_recurrent_layers_has_no_states() -> None:
    spec = cache_spec(ModelConfig.from_dict(DENSE), block_size=64, kv_dtype="bfloat16")
    assert not spec.has_states
    assert spec.state_bytes == 0
    assert spec.block_bytes == 112 * KIB * 64


@pytest.mark.parametrize("raw", [HYBRID, DENSE])
def test_r7_a_draft_layer_counts_its_entries_and_a_state_or_a_block_keeps_the_row_to_go_on_from(
    raw: dict[str, Any],
) -> None:
    plain = ModelConfig.from_dict(raw)
    drafting = dataclasses.replace(plain, num_draft_layers=1)
    before, after = (cache_spec(one, block_size=64, kv_dtype="bfloat16") for one in (plain, drafting))
    layer_bytes = 2 * 64 * plain.num_key_value_heads * plain.head_dim * 2
    row_bytes = 2 * plain.hidden_size
    assert after.block_bytes - before.block_bytes == layer_bytes + 4 + (0 if plain.is_hybrid else row_bytes)
    assert after.state_bytes - before.state_bytes == (row_bytes if plain.is_hybrid else 0)
    assert after.region("draft_counts").shard_axis is None
