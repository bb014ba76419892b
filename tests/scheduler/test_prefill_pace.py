from __future__ import annotations

import pytest

from qanat.scheduler.prefill_pace import MIN_PREFILL_TOKENS, PrefillPace


def test_nothing_is_bounded_before_anything_is_known() -> None:
    pace = PrefillPace()
    assert pace.max_tokens(0.5) is None
    pace.observe(0, 0.1)
    assert pace.max_tokens(0.5) is None


def test_first_observation_sets_the_estimate() -> None:
    pace = PrefillPace()
    pace.observe(1000, 1.0)
    assert pace.s_per_token == pytest.approx(1e-3)
    assert pace.max_tokens(0.5) == 500


def test_prompts_never_starve_however_slow_they_are() -> None:
    pace = PrefillPace()
    pace.observe(100, 1000.0)
    assert pace.max_tokens(0.5) == MIN_PREFILL_TOKENS
    assert pace.max_tokens(0.0) == MIN_PREFILL_TOKENS


def test_estimate_follows_a_change_and_large_chunks_count_more() -> None:
    slow, fast = PrefillPace(), PrefillPace()
    for pace, num_tokens in ((slow, 64), (fast, 2048)):
        pace.observe(1000, 1.0)
        pace.observe(num_tokens, 0.25e-3 * num_tokens)
    assert 0.25e-3 < fast.s_per_token < slow.s_per_token < 1e-3


def test_slow_decodes_do_not_lock_prefill_to_the_minimum() -> None:
    # Decodes take 0.3 s a step; a prefill token costs 1.5 ms. 0.5 s allow 333 tokens, wherever the estimate starts.
    pace = PrefillPace()
    pace.observe(10, 0.2)
    pace.observe(0, 0.3)
    for _ in range(40):
        num_tokens = pace.max_tokens(0.5)
        assert num_tokens is not None
        pace.observe(num_tokens, 0.3 + 1.5e-3 * num_tokens)
    assert pace.max_tokens(0.5) == pytest.approx(333, rel=0.05)


def test_a_stale_decode_duration_does_not_make_prefill_look_free() -> None:
    pace = PrefillPace()
    pace.observe(0, 10.0)
    for _ in range(20):
        pace.observe(1000, 1.0)
    assert pace.s_per_token >= 0.5e-3
