"""Rows of the golden files as layouts."""

from __future__ import annotations

import functools
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from qanat.deploy.knowledge.kinds.models import ModelFacts
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.sizing.budget import visible_bytes
from qanat.deploy.sizing.cache_layout import CacheLayout
from qanat.deploy.sizing.layout import Drafter, Layout
from qanat.deploy.sizing.parameters import Parameters

KNOWLEDGE = load_knowledge()
MODELS = {model.name: model for model in KNOWLEDGE.models}
CHIPS = {chip.name: chip for chip in KNOWLEDGE.chips}
_GOLDEN = Path(__file__).parent / "golden"


@functools.cache
def golden(name: str) -> Any:
    """The contents of a golden file, the same object for everybody."""
    return yaml.safe_load((_GOLDEN / name).read_text(encoding="utf-8"))


def layout_of(row: dict[str, Any]) -> Layout:
    """The layout that a row of `outcomes.yaml` or `measured.yaml` describes."""
    model = MODELS[row["model"]]
    if "with_vision_of" in row:
        model = with_vision(model, MODELS[row["with_vision_of"]])
    k = row["k"]
    return Layout(
        model=model,
        variant=row["weights"],
        npu_bytes=visible_bytes(CHIPS[row["chip"]], row.get("memory_gib")),
        tp=row["tp"],
        dp=row.get("dp", 1),
        expert_parallel=row.get("ep", True),
        drafter=drafter_of(model, k),
        num_speculative_tokens=k,
        max_model_len=row["len"],
        max_num_seqs=row["seqs"],
        max_num_batched_tokens=row["tokens"],
        gpu_memory_utilization=row["util"],
        prefix_caching=row.get("prefix", False),
        capture_sizes=captured(row["graphs"], row["seqs"] * (1 + k)),
        hccl_buffer_mib=row["hccl"],
        language_model_only=row.get("text_only", False),
        state_element_bytes=row.get("state_element_bytes", 4),
    )


def with_vision(model: ModelFacts, other: ModelFacts) -> ModelFacts:
    """The model with the vision tower of the other."""
    return msgspec.structs.replace(
        model,
        has_vision=True,
        vision_layers=other.vision_layers,
        vision_hidden_size=other.vision_hidden_size,
        vision_intermediate_size=other.vision_intermediate_size,
    )


def drafter_of(model: ModelFacts, k: int) -> Drafter | None:
    """The usual drafter of a model."""
    if not k:
        return None
    return "mtp" if model.num_mtp_layers else "eagle3"


def captured(num: int, largest: int) -> tuple[int, ...]:
    """`num` sizes up to `largest`; only their number and the largest one matter for memory."""
    return tuple(max(1, largest - i) for i in range(num))


def example(**changes: Any) -> Layout:
    """The long context layout of the 397B's guide, with changes."""
    return replace(layout_of(golden("outcomes.yaml")[0]), **changes)


def token_bytes(cache: CacheLayout) -> int:
    """Keys and values of one token in all layers."""
    return cache.num_attention_layers * 2 * cache.num_kv_heads * cache.model.head_dim * cache.element_bytes


def state_bytes(cache: CacheLayout) -> int:
    """What the pool gives for the states of one sequence: whole blocks, about twice what they fill."""
    return cache.state_blocks * cache.pool_block_bytes


def filled_state_bytes(cache: CacheLayout) -> int:
    """What states of one sequence would take without blocks: 1 + k states, and the convolution's once."""
    one = (1 + cache.num_speculative_tokens) * cache.state_bytes + cache.convolution_bytes
    return cache.model.num_linear_layers * one


def sequence_bytes(cache: CacheLayout, num_tokens: int) -> int:
    """What a sequence takes of the pool."""
    return cache.blocks_for(num_tokens) * cache.pool_block_bytes


def all_parameters(counts: Parameters) -> int:
    """Everything but the drafter."""
    return sum(astuple(counts)) - counts.mtp
