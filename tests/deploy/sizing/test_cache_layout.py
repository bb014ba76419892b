"""The cache of a rank, against figures worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.deploy.sizing.cache_layout import CacheLayout, cache_of
from tests.deploy.sizing.cases import (
    KNOWLEDGE,
    MODELS,
    example,
    filled_state_bytes,
    golden,
    sequence_bytes,
    state_bytes,
    token_bytes,
)

FIGURES = golden("cache.yaml")


@pytest.mark.parametrize("name", FIGURES)
def test_blocks_pages_and_states_are_those_worked_out_by_hand(name: str) -> None:
    for tp, k, block, page, pool_block, per_token, states, long in FIGURES[name]:
        cache = CacheLayout(model=MODELS[name], tp=tp, num_speculative_tokens=k)
        assert cache.block_tokens == block, (tp, k)
        assert cache.page_bytes == page, (tp, k)
        assert cache.pool_block_bytes == pool_block, (tp, k)
        assert token_bytes(cache) == per_token, (tp, k)
        assert state_bytes(cache) == states, (tp, k)
        assert sequence_bytes(cache, 131072) == long, (tp, k)


def test_layers_form_one_group_of_attention_and_three_of_states() -> None:
    for model in KNOWLEDGE.models:
        cache = CacheLayout(model=model, tp=1, num_speculative_tokens=3)
        assert cache.num_attention_groups == 1
        assert cache.num_state_groups == (3 if model.is_hybrid else 0)


def test_prefix_caching_keeps_one_more_state_of_each_group() -> None:
    cache = CacheLayout(model=MODELS["Qwen3.5-35B-A3B"], tp=2, num_speculative_tokens=3)
    aligned = CacheLayout(
        model=MODELS["Qwen3.5-35B-A3B"], tp=2, num_speculative_tokens=3, keeps_extra_state=True
    )
    assert (cache.state_blocks, aligned.state_blocks) == (12, 15)


def test_prefix_caching_changes_nothing_without_states() -> None:
    layout = example(model=MODELS["Qwen3-32B"], drafter=None, num_speculative_tokens=0, tp=4)
    assert cache_of(layout).blocks_for(1) == 1


def test_eight_bit_caches_and_small_states_are_counted() -> None:
    eight = cache_of(example(model=MODELS["Qwen3-32B"], variant="w8a8c8", drafter=None, tp=4))
    assert token_bytes(eight) == 64 * 2 * 2 * 128
    small = CacheLayout(model=MODELS["Qwen3.5-27B"], tp=2, state_element_bytes=2)
    assert small.block_tokens == 768


def test_a_draft_of_another_kind_adds_a_layer_too() -> None:
    plain = CacheLayout(model=MODELS["Qwen3-32B"], tp=4)
    drafted = CacheLayout(model=MODELS["Qwen3-32B"], tp=4, num_speculative_tokens=3, drafter="eagle3")
    assert token_bytes(drafted) == token_bytes(plain) * 65 // 64


caches = st.builds(
    CacheLayout,
    model=st.sampled_from(KNOWLEDGE.models),
    tp=st.sampled_from((1, 2, 4, 8, 16)),
    num_speculative_tokens=st.integers(0, 7),
    keeps_extra_state=st.booleans(),
    state_element_bytes=st.sampled_from((2, 4)),
)


@given(cache=caches, num_tokens=st.integers(1, 1_010_000))
def test_a_page_has_room_for_what_lies_in_it(cache: CacheLayout, num_tokens: int) -> None:
    filled = cache.block_tokens * token_bytes(cache) // cache.num_attention_layers
    assert cache.page_bytes >= max(filled, cache.state_bytes) + cache.convolution_bytes
    assert state_bytes(cache) >= filled_state_bytes(cache)
    assert sequence_bytes(cache, num_tokens) >= num_tokens * token_bytes(cache)


@given(cache=caches, num_blocks=st.integers(0, 100_000))
def test_the_longest_sequence_is_the_longest_that_fits(cache: CacheLayout, num_blocks: int) -> None:
    num_tokens = cache.tokens_in(num_blocks)
    if num_tokens:
        assert cache.blocks_for(num_tokens) <= num_blocks
    assert cache.blocks_for(num_tokens + 1) > num_blocks
