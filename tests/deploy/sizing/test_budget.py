"""The budget of an NPU: it adds up, and more of one thing never leaves more for another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.errors import ConfigError
from qanat.deploy.sizing.budget import memory_of, visible_bytes
from qanat.deploy.sizing.cache_layout import cache_of
from qanat.deploy.sizing.layout import Layout
from tests.deploy.sizing.cases import CHIPS, KNOWLEDGE, MODELS, drafter_of, example

NPUS = sorted({size for chip in KNOWLEDGE.chips for size in chip.visible_bytes.values()})


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    model = draw(st.sampled_from(KNOWLEDGE.models))
    k = draw(st.integers(0, 5))
    return Layout(
        model=model,
        variant=draw(st.sampled_from(sorted(KNOWLEDGE.weight_formats))),
        npu_bytes=draw(st.sampled_from(NPUS)),
        tp=draw(st.sampled_from((1, 2, 4, 8, 16))),
        dp=draw(st.sampled_from((1, 2, 8))),
        expert_parallel=draw(st.booleans()),
        drafter=drafter_of(model, k),
        num_speculative_tokens=k,
        max_model_len=draw(st.integers(1, 262144)),
        max_num_seqs=draw(st.integers(1, 512)),
        max_num_batched_tokens=draw(st.integers(1, 131072)),
        gpu_memory_utilization=draw(st.sampled_from((0.3, 0.8, 0.9, 0.92, 0.95))),
        prefix_caching=draw(st.booleans()),
        capture_sizes=draw(st.sampled_from(((), (4,), tuple(range(8, 513, 8))))),
        hccl_buffer_mib=draw(st.sampled_from((200, 1024))),
        language_model_only=draw(st.booleans()),
    )


@given(layout=layouts())
def test_everything_adds_up(layout: Layout) -> None:
    memory = memory_of(layout)
    inside = sum(item.size_bytes for item in memory.items if item.is_in_budget)
    outside = sum(item.size_bytes for item in memory.items if not item.is_in_budget)
    assert memory.pool_bytes + inside == memory.budget_bytes <= memory.total_bytes == layout.npu_bytes
    assert memory.head_room_bytes + outside + memory.budget_bytes == memory.total_bytes
    assert all(item.size_bytes >= 0 and item.how for item in memory.items)
    block_bytes = cache_of(layout).pool_block_bytes
    assert max(0, memory.pool_bytes) - memory.num_blocks * block_bytes in range(block_bytes)


@given(layout=layouts(), longer=st.integers(1, 262144))
def test_longer_contexts_never_let_more_sequences_in(layout: Layout, longer: int) -> None:
    memory = memory_of(layout)
    more = memory_of(replace(layout, max_model_len=layout.max_model_len + longer))
    assert more.most_sequences <= memory.most_sequences
    assert more.needed_pool_bytes >= memory.needed_pool_bytes


@given(layout=layouts())
def test_more_speculation_never_lets_more_sequences_in(layout: Layout) -> None:
    drafter = drafter_of(layout.model, 1)
    less = memory_of(
        replace(layout, drafter=drafter, num_speculative_tokens=max(1, layout.num_speculative_tokens))
    )
    more = memory_of(
        replace(layout, drafter=drafter, num_speculative_tokens=layout.num_speculative_tokens + 2)
    )
    assert more.most_sequences <= less.most_sequences
    assert more.longest_context <= less.longest_context


@given(layout=layouts(), field=st.sampled_from(("max_num_seqs", "max_num_batched_tokens", "hccl_buffer_mib")))
def test_more_of_a_buffer_never_leaves_a_larger_pool(layout: Layout, field: str) -> None:
    doubled: Layout = replace(layout, **{field: 2 * getattr(layout, field)})
    assert memory_of(doubled).pool_bytes <= memory_of(layout).pool_bytes


@given(layout=layouts())
def test_more_utilisation_moves_memory_from_head_room_to_the_pool(layout: Layout) -> None:
    memory = memory_of(replace(layout, gpu_memory_utilization=0.8))
    more = memory_of(replace(layout, gpu_memory_utilization=0.9))
    assert more.pool_bytes - memory.pool_bytes == memory.head_room_bytes - more.head_room_bytes > 0


@given(layout=layouts())
def test_what_is_said_to_fit_fits(layout: Layout) -> None:
    memory = memory_of(layout)
    cache = cache_of(layout)
    usable = max(0, memory.num_blocks - 1)
    assert memory.most_sequences * cache.blocks_for(layout.max_model_len) <= usable
    assert (memory.most_sequences + 1) * cache.blocks_for(layout.max_model_len) > usable
    if memory.longest_context:
        assert cache.blocks_for(memory.longest_context) <= usable


def test_the_window_of_the_model_is_the_limit_unless_more_is_asked_for() -> None:
    assert memory_of(example()).longest_context == 262144
    assert memory_of(example(max_model_len=400_000)).longest_context == 400_000


def test_the_vision_tower_takes_weights_and_activations() -> None:
    with_vision, without = memory_of(example()), memory_of(example(language_model_only=True))
    saved = {
        one.name: one.size_bytes - other.size_bytes
        for one, other in zip(with_vision.items, without.items, strict=True)
        if one.size_bytes != other.size_bytes
    }
    assert set(saved) == {"weights", "activations"} and all(size > 0 for size in saved.values())


def test_an_npu_shows_less_than_its_nominal_size() -> None:
    for chip in KNOWLEDGE.chips:
        assert chip.memory_gib in chip.visible_bytes
        for nominal, visible in chip.visible_bytes.items():
            assert 0.9 < visible / (nominal * 2**30) < 1
    assert visible_bytes(CHIPS["A2"]) == 65452113920
    assert visible_bytes(CHIPS["A2"], 32) / 2**30 == pytest.approx(29.5, abs=0.05)
    with pytest.raises(ConfigError, match="A2 has 32 or 64 GiB per NPU, not 48"):
        visible_bytes(CHIPS["A2"], 48)


def test_unknown_weights_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'int3'"):
        memory_of(example(variant="int3"))


def test_a_large_step_on_a_small_model_takes_several_gigabytes() -> None:
    small = memory_of(
        example(
            model=MODELS["Qwen3.5-35B-A3B"],
            tp=2,
            max_num_batched_tokens=122880,
            max_model_len=32768,
            language_model_only=True,
        )
    )
    (activations,) = [item for item in small.items if item.name == "activations"]
    assert 3e9 < activations.size_bytes < 15e9
