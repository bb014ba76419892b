"""Model folders with nothing but a config.json, for whatever needs no weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from qanat.config.env import Environment, read_environment
from qanat.config.machine import MachineInfo

TINY_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForCausalLM"],
    "vocab_size": 320,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 262144,
    "eos_token_id": 5,
    "rope_theta": 10000.0,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "dtype": "bfloat16",
}

TWO_CORES = MachineInfo(
    platform="cpu (test)",
    cpu_model="test",
    num_cores=2,
    instruction_sets=("AVX2",),
    total_bytes=8 * 2**30,
    available_bytes=4 * 2**30,
    memory_bound="free memory of the machine",
    binding_order=(0, 1),
)

NO_VARIABLES: Environment = read_environment({})


def write_model(folder: Path, **changes: Any) -> Path:
    """Writes config.json with these keys changed; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**TINY_CONFIG, **changes}))
    return folder
