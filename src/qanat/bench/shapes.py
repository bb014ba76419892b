"""Models by name, file or folder: a benchmark needs a shape, and weights only where they are there."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qanat.config.engine_config import EngineConfig
from qanat.config.env import Environment
from qanat.config.json_section import read_json
from qanat.config.model_config import ModelConfig
from qanat.config.model_source import locate_model
from qanat.core.decision import Decision
from qanat.deploy.knowledge.kinds.models import ModelFacts
from qanat.deploy.knowledge.load import load_knowledge

DEMO = "demo"
"""Stands for the demo model."""

CONFIG_NAME = "config.json"
RANDOM_WEIGHTS = "only the shape is known here, so the weights are random"


def known_shapes() -> dict[str, ModelFacts]:
    """The published models whose sizes are known without a file, by name."""
    return {facts.name: facts for facts in load_knowledge().models if facts.vocab_size}


@contextlib.contextmanager
def prepared_model(wishes: EngineConfig) -> Iterator[EngineConfig]:
    """The wishes with a model that can be started: a name or a config.json becomes a folder, as long as this lasts.

    Raises:
        CheckpointError: a file that is no JSON.
    """
    name = wishes.model
    if name is None or name == DEMO:
        yield dataclasses.replace(wishes, model=None)
        return
    path = Path(name).expanduser()
    if path.is_dir() or (path.is_file() and path.name == CONFIG_NAME):
        folder = path if path.is_dir() else path.parent
        has_weights = any(folder.glob("*.safetensors"))
        yield _with_folder(wishes, folder, is_random=not has_weights)
        return
    raw = read_json(path) if path.is_file() else _raw_config(name)
    if raw is None:
        yield wishes
        return
    with tempfile.TemporaryDirectory(prefix="qanat-bench-") as made:
        (Path(made) / CONFIG_NAME).write_text(json.dumps(raw), encoding="utf-8")
        yield _with_folder(wishes, Path(made), is_random=True)


def model_config(name: str | None, environment: Environment) -> ModelConfig:
    """The shape of a model: of a known name, a config.json, a folder, a hub id, or the demo model.

    Raises:
        ConfigError: there is no such model.
        CheckpointError: the file does not describe a model that Qanat knows.
    """
    name = None if name == DEMO else name
    if name is not None:
        path = Path(name).expanduser()
        if path.is_file():
            return ModelConfig.from_dict(read_json(path))
        raw = None if path.is_dir() else _raw_config(name)
        if raw is not None:
            return ModelConfig.from_dict(raw)
    folder, _ = locate_model(EngineConfig(model=name, load_format="dummy"), environment)
    return ModelConfig.from_folder(folder)


def raw_config(facts: ModelFacts) -> dict[str, Any]:
    """The sizes of a model in the words of a text-only config.json; constants are those of its family."""
    hybrid, moe = facts.is_hybrid, facts.is_moe
    family = "qwen3_5" if hybrid else "qwen3"
    architecture = ("Qwen3_5" if hybrid else "Qwen3") + ("Moe" if moe else "") + "ForCausalLM"
    raw: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": f"{family}{'_moe' if moe else ''}{'_text' if hybrid else ''}",
        "dtype": "bfloat16",
        "vocab_size": facts.vocab_size,
        "hidden_size": facts.hidden_size,
        "intermediate_size": facts.intermediate_size or facts.expert_intermediate_size,
        "num_hidden_layers": facts.num_layers,
        "num_attention_heads": facts.num_query_heads,
        "num_key_value_heads": facts.num_kv_heads,
        "head_dim": facts.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": facts.max_position,
        "tie_word_embeddings": facts.has_tied_embeddings,
        "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7 if hybrid else 1e6},
    }
    if hybrid:
        raw |= _hybrid_keys(facts)
    if moe:
        raw |= {
            "num_experts": facts.num_experts,
            "num_experts_per_tok": facts.num_experts_per_token,
            "moe_intermediate_size": facts.expert_intermediate_size,
            "norm_topk_prob": True,
        }
        if facts.shared_intermediate_size:
            raw["shared_expert_intermediate_size"] = facts.shared_intermediate_size
    return raw


def _hybrid_keys(facts: ModelFacts) -> dict[str, Any]:
    interval = facts.full_attention_interval
    return {
        "attn_output_gate": True,
        "full_attention_interval": interval,
        "layer_types": [
            "full_attention" if (layer + 1) % interval == 0 else "linear_attention"
            for layer in range(facts.num_layers)
        ],
        "linear_conv_kernel_dim": facts.linear_conv_kernel,
        "linear_num_key_heads": facts.num_linear_key_heads,
        "linear_num_value_heads": facts.num_linear_value_heads,
        "linear_key_head_dim": facts.linear_head_dim,
        "linear_value_head_dim": facts.linear_head_dim,
        "mtp_num_hidden_layers": 0,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10],
            "mrope_interleaved": True,
        },
    }


def _raw_config(name: str) -> dict[str, Any] | None:
    by_name = {known.lower(): facts for known, facts in known_shapes().items()}
    facts = by_name.get(name.lower())
    return raw_config(facts) if facts is not None else None


def _with_folder(wishes: EngineConfig, folder: Path, *, is_random: bool) -> EngineConfig:
    """The wishes for this folder, named as the user named it; random weights are said."""
    changes: dict[str, Any] = {"model": str(folder)}
    if not wishes.served_model_name and wishes.model:
        changes["served_model_name"] = (wishes.model,)
    if is_random and wishes.load_format == "auto":
        changes["load_format"] = "dummy"
        changes["notes"] = (*wishes.notes, Decision("--load-format", "auto", "dummy", RANDOM_WEIGHTS))
    return dataclasses.replace(wishes, **changes)
