"""Tiny random models and configurations for the worker's tests."""

from __future__ import annotations

from typing import Any

import torch

from qanat.config.model_config import ModelConfig
from qanat.config.resolved import CacheLimits, ResolvedConfig, SchedulerLimits
from qanat.models.decoder import CausalLM
from qanat.models.dummy import load_dummy

VOCAB_SIZE = 96

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "eos_token_id": 5,
    "rope_theta": 10000.0,
}
_DELTA_NET: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}

CONFIGS: dict[str, ModelConfig] = {
    "qwen3": ModelConfig.from_dict({"architectures": ["Qwen3ForCausalLM"], **_COMMON}),
    "qwen3_5": ModelConfig.from_dict({"architectures": ["Qwen3_5ForCausalLM"], **_COMMON, **_DELTA_NET}),
    "qwen3_5_moe": ModelConfig.from_dict(
        {"architectures": ["Qwen3_5MoeForCausalLM"], **_COMMON, **_DELTA_NET, **_EXPERTS}
    ),
}

_models: dict[str, CausalLM] = {}


def tiny_model(family: str) -> CausalLM:
    """A model with random fp32 weights, made once per process and never changed."""
    if family not in _models:
        _models[family] = load_dummy(CONFIGS[family], torch.float32, seed=3)
    return _models[family]


def tiny_config(
    family: str = "qwen3_5", cache: dict[str, Any] | None = None, **limits: Any
) -> ResolvedConfig:
    """A configuration that loads random weights; `limits` and `cache` override single fields."""
    return ResolvedConfig(
        model_path="",
        served_model_names=("tiny",),
        model=CONFIGS[family],
        dtype="float32",
        load_format="dummy",
        seed=3,
        scheduler=SchedulerLimits(
            **({"max_num_batched_tokens": 64, "max_num_seqs": 8, "max_model_len": 256} | limits)
        ),
        cache=CacheLimits(**({"block_size": 16, "kv_cache_dtype": "float32"} | (cache or {}))),
    )
