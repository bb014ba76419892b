"""S13: short prompts do not wait for the end of a very long one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.step_loop import StepLoop, make_request

LONG = 60_000


def long_loop(**limits: object) -> StepLoop:
    """A prompt of 60,000 tokens under way, 2,048 tokens a step."""
    base = {"max_num_batched_tokens": 2048, "max_model_len": 100_000, "block_size": 64, "num_blocks": 2000}
    loop = StepLoop(**{**base, "max_decode_stall_s": 1000.0, **limits})  # type: ignore[arg-type]
    loop.scheduler.observe_step(1_000_000, 10.0)  # 100,000 tokens a second are known
    loop.add(make_request("long", [1] * LONG, 2))
    loop.step()
    return loop


def num_left(loop: StepLoop) -> int:
    return LONG - loop.requests["long"].num_computed_tokens


def test_perf_013_short_prompts_get_a_first_token_within_a_step_of_a_long_prefill() -> None:
    loop = long_loop(max_num_seqs=64)
    num_steps = 0
    while "long" not in loop.ends:
        name = f"short-{num_steps}"
        if num_steps % 5 == 0 and num_left(loop) > 4096:
            loop.add(make_request(name, 200, 4))
            loop.step()
            assert loop.tokens[name], f"no first token after {num_steps} steps"
        loop.step()
        num_steps += 1
    # It had at least half of each step in which there were short ones.
    assert num_steps <= LONG / 2048 + 12
    loop.run()
    loop.check_idle()


def test_perf_013_a_burst_of_short_prompts_shares_the_kept_half() -> None:
    loop = long_loop(max_num_seqs=64)
    before = num_left(loop)
    for number in range(40):
        loop.add(make_request(f"short-{number}", 100, 2))
    for _ in range(4):
        loop.step()
    assert all(loop.tokens[f"short-{number}"] for number in range(40))
    assert before - num_left(loop) >= 4 * 1024 - 4 * 64


def test_s13_without_short_prompts_the_long_one_has_the_whole_step() -> None:
    loop = long_loop()
    loop.add(make_request("long-too", [2] * 30_000, 2))
    before = num_left(loop)
    for _ in range(5):
        loop.step()
    assert before - num_left(loop) == 5 * 2048


@pytest.mark.parametrize("is_row_free", [True, False])
def test_s13_nothing_is_kept_for_those_who_cannot_enter(is_row_free: bool) -> None:
    loop = long_loop(max_num_seqs=2 if is_row_free else 1)
    before = num_left(loop)
    loop.add(make_request("short", 200, 2))
    loop.step()
    assert before - num_left(loop) == (1024 + 1024 - 256 if is_row_free else 2048)


def test_s13_where_half_a_step_is_no_chunk_short_prompts_have_every_other_step() -> None:
    loop = long_loop(max_num_batched_tokens=100)
    for number in range(6):
        loop.add(make_request(f"short-{number}", 90, 1))
    before = num_left(loop)
    for _ in range(12):
        loop.step()
    assert all(loop.tokens[f"short-{number}"] for number in range(6))
    assert before - num_left(loop) >= 6 * 64


def test_s13_a_step_is_never_left_empty_for_a_short_prompt_that_does_not_fit() -> None:
    # All blocks but two belong to the long prompt.
    loop = StepLoop(max_num_batched_tokens=100, num_blocks=202, max_decode_stall_s=1000.0)
    loop.scheduler.observe_step(1_000_000, 10.0)
    loop.add(make_request("long", [1] * 3200, 2))
    loop.step()
    for number in range(3):
        loop.add(make_request(f"short-{number}", 90, 2))
    while "long" not in loop.ends:
        assert loop.step() is not None
    loop.run()
    loop.check_idle()


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(1, 5), st.integers(0, 6)), min_size=1, max_size=15),
    st.sampled_from([64, 96, 130, 256, 500]),
    st.sampled_from([30, 60, 200]),
    st.integers(0, 2),
)
def test_s13_whatever_comes_every_prompt_is_computed_and_every_request_ends(
    asks: list[tuple[int, int, int]], budget: int, num_blocks: int, overlap_depth: int
) -> None:
    loop = StepLoop(
        max_num_batched_tokens=budget, num_blocks=num_blocks, max_num_seqs=4, overlap_depth=overlap_depth
    )
    for number, (num_prompt, max_tokens, num_steps) in enumerate(asks):
        if (num_prompt + max_tokens) // 16 + 2 <= num_blocks:
            loop.add(make_request(f"r{number}", num_prompt, max_tokens, owner=str(number % 3)))
        for _ in range(num_steps):
            if loop.scheduler.has_work:
                loop.step()
    loop.run()
    loop.check_idle()
    for name, request in loop.requests.items():
        assert len(loop.tokens[name]) == request.sampling.max_tokens
