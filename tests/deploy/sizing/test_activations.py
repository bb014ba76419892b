"""The estimate of activations is the sum and the largest of what it says it is, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import msgspec

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.sizing.activations import activation_bytes, expert_bytes
from qanat.deploy.sizing.budget import memory_of
from qanat.deploy.sizing.layout import Layout
from tests.deploy.sizing.cases import KNOWLEDGE, MODELS, example

TOKENS = 16384
HIDDEN_COPIES = 6


def layer_bytes(layout: Layout, knowledge: Knowledge = KNOWLEDGE) -> int:
    """What is left of the estimate without hidden states."""
    hidden = TOKENS * layout.model.hidden_size * 2
    return activation_bytes(layout, knowledge) - HIDDEN_COPIES * hidden


def text_layout(name: str, tp: int, **changes: object) -> Layout:
    model = MODELS[name]
    settings = {"drafter": None, "num_speculative_tokens": 0, "max_num_seqs": 1, "language_model_only": True}
    return example(model=model, tp=tp, max_num_batched_tokens=TOKENS, **(settings | changes))


def without_linear_copies() -> Knowledge:
    """So few copies of recurrent projections that another layer is the largest."""
    table = KNOWLEDGE.tables["estimates"]
    small = msgspec.structs.replace(table.entries["linear_copies"], value=0)
    entries = MappingProxyType({**table.entries, "linear_copies": small})
    return replace(KNOWLEDGE, tables={**KNOWLEDGE.tables, "estimates": replace(table, entries=entries)})


def test_the_feed_forward_is_the_largest_layer_of_a_dense_model() -> None:
    assert layer_bytes(text_layout("Qwen3-32B", 4)) == TOKENS * (3 * 25600 // 4) * 2


def test_attention_is_the_largest_layer_where_experts_are_small() -> None:
    layout = text_layout("Qwen3-30B-A3B", 16)
    assert layout.expert_parallel
    experts = TOKENS * 8 // 16 * (2 * 2048 + 3 * 768) * 2
    assert expert_bytes(layout) == experts
    narrow = replace(layout, model=msgspec.structs.replace(layout.model, num_query_heads=512))
    assert layer_bytes(narrow) == TOKENS * (3 * 32 + 2 * 1) * 128 * 2 > experts


def test_a_recurrent_layer_has_copies_of_its_projections_and_a_state_for_each_chunk() -> None:
    layout = text_layout("Qwen3.5-0.8B", 1)
    projections = 2 * (2048 + 2048) * 2 * 3
    assert layer_bytes(layout) == TOKENS * (projections + 2048 * 128 * 2 // 64)


def test_logits_of_all_sequences_count_where_they_are_larger() -> None:
    layout = text_layout("Qwen3.5-0.8B", 1, max_num_seqs=4000, drafter="mtp", num_speculative_tokens=3)
    assert layer_bytes(layout) == 4 * 4000 * 248320 * 4 * 2
    assert layer_bytes(replace(layout, max_num_seqs=100_000)) == TOKENS * 248320 * 4 * 2


def test_experts_of_one_npu_see_their_share_of_all_ranks_tokens() -> None:
    knowledge = without_linear_copies()
    layout = text_layout("Qwen3.5-35B-A3B", 2, dp=4)
    rows = TOKENS * 4 * 8 // 8
    assert expert_bytes(layout) == rows * (2 * 2048 + 3 * 512) * 2
    gathered = TOKENS * 4 * 2048 * 2
    assert layer_bytes(layout, knowledge) == expert_bytes(layout) + gathered


def test_slices_of_experts_see_every_token() -> None:
    layout = text_layout("Qwen3.5-35B-A3B", 2, dp=4, expert_parallel=False)
    assert expert_bytes(layout) == TOKENS * 4 * 8 * (2 * 2048 + 3 * 512 // 8) * 2


def test_only_whole_experts_can_get_more_than_their_share() -> None:
    def uneven(layout: Layout) -> int:
        return next(item.size_bytes for item in memory_of(layout).items if item.name == "uneven experts")

    assert uneven(example()) == expert_bytes(example())
    assert uneven(example(expert_parallel=False)) == 0
    assert uneven(text_layout("Qwen3.5-35B-A3B", 1)) == 0
    assert uneven(text_layout("Qwen3-32B", 4)) == 0
