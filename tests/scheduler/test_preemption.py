"""Preemption by recompute: rules S5 and S6 of docs/hybrid-cache.md, and the trial case ENG-005."""

from __future__ import annotations

import pytest

from qanat.core.request import RequestStatus
from tests.support.fake_model import undisturbed_output
from tests.support.step_loop import StepLoop, make_request


def assert_undisturbed(loop: StepLoop) -> None:
    """Every request's tokens are those of a run of its own."""
    for request_id, request in loop.requests.items():
        assert loop.tokens[request_id] == undisturbed_output(request, loop.executor.vocab_size)


def test_eng_005_requests_that_preempt_each_other_yield_what_they_would_alone() -> None:
    loop = StepLoop(num_blocks=32, num_states=6, max_num_seqs=6, max_num_batched_tokens=512)
    for index in range(6):
        loop.add(make_request(f"r{index}", 60, 60))
    loop.run()
    loop.check_idle()
    assert loop.scheduler.stats().num_preemptions >= 2
    assert_undisturbed(loop)


@pytest.mark.parametrize("is_chunked_prefill_enabled", [True, False])
@pytest.mark.parametrize("num_states", [0, 4])
@pytest.mark.parametrize("max_draft_tokens", [0, 3])
def test_eng_005_preemption_after_1_8_and_31_tokens_twice_each(
    is_chunked_prefill_enabled: bool, num_states: int, max_draft_tokens: int
) -> None:
    loop = StepLoop(
        num_states=num_states,
        max_num_seqs=4,
        is_chunked_prefill_enabled=is_chunked_prefill_enabled,
        max_draft_tokens=max_draft_tokens,
    )
    marks = {"a": [1, 8], "b": [8, 31], "c": [31, 33], "d": []}
    for name in marks:
        loop.add(make_request(name, 70, 50))
    while loop.scheduler.has_work:
        loop.step()
        for name, left in marks.items():
            if left and len(loop.tokens[name]) >= left[0]:
                assert loop.scheduler.preempt(name)
                left.pop(0)
    loop.check_idle()
    assert [loop.requests[name].num_preemptions for name in "abcd"] == [2, 2, 2, 0]
    assert_undisturbed(loop)


def test_eng_005_recompute_starts_at_zero_with_prompt_and_output() -> None:
    loop = StepLoop(num_states=2)
    loop.add(make_request("a", 20, 30))
    for _ in range(6):
        loop.step()
    known = loop.requests["a"].prompt_token_ids + loop.tokens["a"]
    assert loop.scheduler.preempt("a")
    assert loop.requests["a"].status is RequestStatus.PREEMPTED
    assert loop.requests["a"].num_computed_tokens == 0
    assert (loop.cache.num_free_blocks, loop.cache.num_free_states) == (64, 2)
    batch = loop.step()
    assert batch is not None
    (new,) = batch.new_rows
    assert batch.freed_rows == [new.row]  # freed and entered again in one step
    assert (new.token_ids, new.num_computed_tokens, new.num_prompt_tokens) == (known, 0, 20)
    assert batch.rows[0].num_scheduled_tokens == len(known) == 26


def test_preempting_before_the_first_token_loses_nothing() -> None:
    loop = StepLoop(max_num_batched_tokens=64)
    loop.add(make_request("a", 150, 5))
    loop.step()
    assert loop.scheduler.preempt("a")
    loop.run()
    loop.check_idle()
    assert_undisturbed(loop)


def test_preempt_of_what_does_not_run_does_nothing() -> None:
    loop = StepLoop(max_num_seqs=1)
    loop.add(make_request("a", 5))
    loop.add(make_request("waits", 5))
    loop.step()
    assert not loop.scheduler.preempt("waits")
    assert not loop.scheduler.preempt("unknown")
    assert loop.scheduler.stats().num_preemptions == 0


def crowd(policy: str, priorities: dict[str, int]) -> StepLoop:
    """Requests of 16 + 48 tokens in a pool in which they fit at first and run into each other later."""
    loop = StepLoop(num_blocks=2 * len(priorities), policy=policy)
    for name, priority in priorities.items():
        loop.add(make_request(name, 16, 48, priority=priority))
    return loop


def preempted_in_order(loop: StepLoop) -> list[str]:
    order: list[str] = []
    while loop.scheduler.has_work:
        before = {name: request.num_preemptions for name, request in loop.requests.items()}
        loop.step()
        order += [name for name, request in loop.requests.items() if request.num_preemptions > before[name]]
    loop.check_idle()
    assert_undisturbed(loop)
    return order


def test_s5_fcfs_preempts_the_latest_arrival() -> None:
    assert preempted_in_order(crowd("fcfs", {"a": 0, "b": -1, "c": -2}))[0] == "c"


def test_s5_priority_preempts_the_lowest_priority() -> None:
    assert preempted_in_order(crowd("priority", {"a": 2, "b": 1, "c": 0}))[0] == "a"


def test_s5_the_first_in_rank_is_never_preempted() -> None:
    for policy, first in (("fcfs", "a"), ("priority", "c")):
        order = preempted_in_order(crowd(policy, {"a": 2, "b": 1, "c": 0}))
        assert order and first not in order


def test_s5_a_request_without_room_waits_for_earlier_ones_and_keeps_what_it_has() -> None:
    # Seven blocks of 16. a grows to four and stays there for its last steps; b has three by then and wants a fourth.
    loop = StepLoop(num_blocks=7)
    loop.add(make_request("a", 40, 24))
    loop.add(make_request("b", 31, 21))
    num_rows = []
    while "a" not in loop.ends:
        batch = loop.step()
        assert batch is not None
        num_rows.append(len(batch.rows))
    assert num_rows == [2] * 18 + [1] * 6
    loop.run()
    loop.check_idle()
    assert loop.scheduler.stats().num_preemptions == 0
    assert_undisturbed(loop)


def test_a_preempted_request_is_first_in_the_queue_even_before_an_earlier_arrival() -> None:
    loop = StepLoop(max_num_seqs=2)
    for name, arrival_time_s in (("a", 5.0), ("b", 5.0), ("earlier", 1.0)):
        loop.clock.now_s = 5.0
        loop.add(make_request(name, 10, 20, arrival_time_s=arrival_time_s))
        if name == "b":
            loop.step()
    loop.scheduler.preempt("a")
    batch = loop.step()
    assert batch is not None
    assert [new.request_id for new in batch.new_rows] == ["a"]
    assert loop.scheduler.num_waiting == 1


def test_continuing_a_request_elsewhere_is_the_same_road() -> None:
    whole = make_request("whole", [5, 6, 7], 40)
    expected = undisturbed_output(whole, 97)
    for cut in (1, 17, 39):
        loop = StepLoop()
        loop.add(make_request("whole", [5, 6, 7], 40, output_token_ids=expected[:cut]))
        loop.run()
        assert loop.tokens["whole"] == expected
