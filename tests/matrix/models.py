"""Models of the matrix: the demo model, and a random tiny one of every family with the demo's tokenizer.

Families without linear attention have an EAGLE-3 draft beside them, the others a layer that drafts.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import qanat_demo

from qanat.config.model_config import ModelConfig
from qanat.config.prepare import prepare
from qanat.config.wishes import from_keywords
from qanat.engine.sync_engine import SyncEngine
from qanat.kernels.native import module
from tests.matrix.scenario import Way, Weights
from tests.support.eagle3 import write_draft

DEMO = "demo"
MAX_MODEL_LEN = 768
VOCAB_SIZE = 1024
BLOCK_SIZE = 64

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "eos_token_id": 967,
    "rope_theta": 10000.0,
}
_DELTA_NET: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "mtp_num_hidden_layers": 1,
}
_EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_SHARED: dict[str, Any] = {"shared_expert_intermediate_size": 32}

FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], **_COMMON, "tie_word_embeddings": True},
    "qwen3_moe": {"architectures": ["Qwen3MoeForCausalLM"], **_COMMON, **_EXPERTS, "norm_topk_prob": True},
    "qwen3_5": {"architectures": ["Qwen3_5ForCausalLM"], **_COMMON, **_DELTA_NET},
    "qwen3_5_moe": {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        **_COMMON,
        **_DELTA_NET,
        **_EXPERTS,
        **_SHARED,
    },
}


def write_folders(folder: Path) -> None:
    """A folder for every family, with a configuration and a tokenizer; the weights are drawn at every start."""
    demo = Path(qanat_demo.model_path())
    for family, config in FAMILIES.items():
        place = folder / family
        place.mkdir()
        (place / "config.json").write_text(json.dumps(config))
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(demo / name, place)
        if not has_states(Weights(family=family)):
            layout, size = ("flat", VOCAB_SIZE) if family == "qwen3" else ("speculators", VOCAB_SIZE // 3)
            write_draft(_draft(folder, family), ModelConfig.from_folder(place), layout, size)


def _draft(folder: Path, family: str) -> Path:
    return folder / f"{family}-eagle3"


def has_states(weights: Weights) -> bool:
    """Whether the model has linear-attention layers, and with them a draft layer."""
    return weights.family == DEMO or "linear_key_head_dim" in FAMILIES[weights.family]


def open_engine(folder: Path, weights: Weights, way: Way, num_blocks: int) -> SyncEngine:
    """A started engine.

    Args:
        folder: see `write_folders`.
        weights: the model and its numbers.
        way: how it serves.
        num_blocks: usable blocks of its cache.
    """
    wishes: dict[str, Any] = {
        "max_model_len": MAX_MODEL_LEN,
        "dtype": weights.dtype,
        "quantization": weights.quantization,
        "kv_cache_dtype": weights.kv_cache_dtype,
        "seed": weights.seed,
        "num_gpu_blocks_override": num_blocks + 1,
        # The pace of this machine decides nothing: what fails once fails again.
        "max_decode_stall_s": 1e6,
        **way.flags,
    }
    if weights.family == DEMO:
        wishes["model"] = str(qanat_demo.model_path())
    else:
        wishes |= {"model": str(folder / weights.family), "load_format": "dummy"}
    drafts = wishes.get("speculative_config")
    if drafts is not None and drafts["method"] == "eagle3":
        wishes["speculative_config"] = drafts | {"model": str(_draft(folder, weights.family))}
    with _instruction_set(way.instruction_set):
        return SyncEngine(prepare(from_keywords(wishes)).config)


@contextmanager
def _instruction_set(name: str) -> Iterator[None]:
    """The kernels that an engine takes which is started meanwhile; the best where this processor has not got them."""
    before = os.environ.get("QANAT_ISA")
    os.environ["QANAT_ISA"] = name if name in module.instruction_sets() else ""
    try:
        yield
    finally:
        if before is None:
            del os.environ["QANAT_ISA"]
        else:
            os.environ["QANAT_ISA"] = before
