"""S12: deadlines for the queue, the first token and the whole, and requests that are given up before their prefill."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.errors import DeadlineError
from qanat.core.request import FinishReason
from qanat.core.timeouts import Timeouts
from tests.support.step_loop import StepLoop, make_request


def measured_loop(**limits: object) -> StepLoop:
    """Prefill takes a second for 64 tokens, and that is known."""
    settings = {
        "max_num_batched_tokens": 64,
        "max_num_seqs": 1,
        "num_blocks": 200,
        "max_decode_stall_s": 100.0,
    }
    loop = StepLoop(**{**settings, **limits})  # type: ignore[arg-type]
    loop.add(make_request("warm-up", 1024, 1))
    while loop.scheduler.has_work:
        loop.step(1.0)
    return loop


def error_of(loop: StepLoop, name: str) -> tuple[str, str]:
    end = loop.ends[name]
    assert end.finish_reason is FinishReason.ERROR and end.error_code == DeadlineError.code
    return end.error_param, end.error_message


def test_s12_a_request_that_is_not_begun_in_time_ends() -> None:
    loop = StepLoop(max_num_seqs=1)
    loop.add(make_request("first", 16, 20))
    loop.add(make_request("second", 16, 4, queue_deadline_s=0.05))
    loop.add(make_request("third", 16, 4, queue_deadline_s=10.0))
    loop.run()
    param, message = error_of(loop, "second")
    assert param == "timeout.queue" and "waited for its timeout.queue of 0.05 s" in message
    assert not loop.tokens["second"] and len(loop.tokens["third"]) == 4
    loop.check_idle()


def test_s12_the_queue_deadline_means_nothing_once_a_request_is_begun() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 16, 50, queue_deadline_s=0.05, first_token_deadline_s=0.06))
    loop.run()
    assert loop.ends["a"].finish_reason is FinishReason.LENGTH and loop.clock.now_s > 0.1


def test_s12_a_request_without_a_first_token_in_time_ends_even_in_the_middle_of_its_prompt() -> None:
    loop = StepLoop(max_num_batched_tokens=16, num_blocks=200)
    loop.add(make_request("a", 320, 4, first_token_deadline_s=0.1))
    loop.run()
    param, message = error_of(loop, "a")
    assert (
        param == "timeout.first_token" and "no first token within its timeout.first_token of 0.1 s" in message
    )
    loop.check_idle()


def test_s12_the_total_counts_to_the_end() -> None:
    loop = StepLoop()
    loop.add(make_request("a", 16, 50, queue_deadline_s=5.0, first_token_deadline_s=6.0, deadline_s=0.105))
    loop.run()
    param, message = error_of(loop, "a")
    assert param == "timeout" and f"after {len(loop.tokens['a'])} output tokens" in message
    assert 0 < len(loop.tokens["a"]) < 50
    loop.check_idle()


@pytest.mark.parametrize("field", ["first_token_deadline_s", "deadline_s"])
def test_s12_nothing_is_computed_for_a_request_without_hope(field: str) -> None:
    loop = measured_loop()
    now_s = loop.clock.now_s
    loop.add(make_request("hopeless", 1024, 4, arrival_time_s=now_s, **{field: now_s + 10.0}))
    loop.add(make_request("fine", 256, 4, arrival_time_s=now_s, **{field: now_s + 10.0}))
    loop.step(1.0)
    assert loop.ends["hopeless"].timing is not None and loop.ends["hopeless"].timing.prefill_s == 0.0
    param, message = error_of(loop, "hopeless")
    assert param == {"first_token_deadline_s": "timeout.first_token", "deadline_s": "timeout"}[field]
    assert "its 1024 tokens need about 16 s" in message and "of 10 s" in message
    loop.run()
    assert len(loop.tokens["fine"]) == 4
    loop.check_idle()


def test_s12_hope_that_goes_while_waiting_is_given_up_then_and_not_at_the_deadline() -> None:
    loop = measured_loop()
    now_s = loop.clock.now_s
    loop.add(make_request("running", 16, 1000))
    loop.step(1.0)
    loop.add(make_request("waits", 640, 4, arrival_time_s=now_s, first_token_deadline_s=now_s + 20.0))
    while "waits" not in loop.ends:
        loop.step(1.0)
    # 10 s of prefill, a quarter faster 8 s, must begin 12 s after the arrival.
    assert 11 <= loop.clock.now_s - now_s <= 15
    assert error_of(loop, "waits")[0] == "timeout.first_token"


@pytest.mark.parametrize("num_before", [0, 1])
def test_s12_hope_that_goes_with_the_pace_is_given_up_before_the_prefill(num_before: int) -> None:
    loop = measured_loop(max_num_seqs=4, max_num_batched_tokens=256)
    now_s = loop.clock.now_s
    for number in range(num_before):  # another request enters in the very same step
        loop.add(make_request(f"before-{number}", 16, 2, arrival_time_s=now_s))
    loop.add(make_request("a", 640, 4, arrival_time_s=now_s, first_token_deadline_s=now_s + 100.0))
    loop.scheduler.observe_step(100_000, 100_000.0)  # from now on a second a token
    loop.step(1.0)
    loop.step(1.0)
    assert loop.requests["a"].num_computed_tokens == 0
    assert "its 640 tokens need about" in error_of(loop, "a")[1]
    loop.run()
    loop.check_idle()


def test_s12_nothing_is_given_up_on_a_guess() -> None:
    loop = StepLoop(max_num_batched_tokens=64, num_blocks=200)
    loop.scheduler.observe_step(64, 1000.0)  # one slow step at the start, as while a library is loaded
    loop.add(make_request("a", 1024, 1, first_token_deadline_s=30.0))
    loop.run()
    assert len(loop.tokens["a"]) == 1


def test_s12_nothing_is_given_up_within_the_margin() -> None:
    loop = measured_loop()
    now_s = loop.clock.now_s
    # 16 s at the measured pace; the machine may be a little faster today.
    loop.add(make_request("a", 1024, 1, arrival_time_s=now_s, first_token_deadline_s=now_s + 14.0))
    while loop.scheduler.has_work:
        loop.step(0.8)
    assert len(loop.tokens["a"]) == 1


def test_s12_an_output_that_goes_on_is_not_held_to_the_first_token() -> None:
    loop = measured_loop()
    now_s = loop.clock.now_s
    deadlines = {"first_token_deadline_s": now_s + 3.0, "deadline_s": now_s + 500.0}
    loop.add(make_request("a", 64, 10, arrival_time_s=now_s, **deadlines))
    loop.step(1.0)
    loop.step(1.0)
    assert loop.tokens["a"]
    assert loop.scheduler.preempt("a")  # what follows waits again, but has had its first token
    loop.add(make_request("b", 64, 10, arrival_time_s=now_s))
    while loop.scheduler.has_work:
        loop.step(1.0)
    assert len(loop.tokens["a"]) == 10


@pytest.mark.parametrize("span_s", [1e-9, 0.1, 12.5, 1234567.0])
def test_s12_messages_say_what_was_asked_for_whatever_the_clock_makes_of_it(span_s: float) -> None:
    loop = StepLoop(max_num_seqs=1)
    loop.clock.now_s = 87654321.123
    loop.add(make_request("first", 16, 20))
    parts = {"timeout": "total_s", "timeout.queue": "queue_s", "timeout.first_token": "first_token_s"}
    for param, part in parts.items():
        timeouts = Timeouts(**{part: span_s})
        loop.add(make_request(param, 16, 4, arrival_time_s=loop.clock.now_s, timeouts=timeouts))
    loop.step()
    loop.clock.advance(2 * span_s + 1e-6)
    loop.step()
    for param in parts:
        assert f"{param} of {span_s:.10g} s" in error_of(loop, param)[1]


DEADLINE = st.one_of(st.none(), st.floats(0.0, 3.0))


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(1, 200), st.integers(1, 12), DEADLINE, DEADLINE, DEADLINE, st.integers(0, 3)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([1, 3]),
)
def test_s12_every_request_ends_once_and_never_works_past_its_deadline(
    asks: list[tuple[int, int, float | None, float | None, float | None, int]], max_num_seqs: int
) -> None:
    loop = StepLoop(max_num_batched_tokens=64, max_num_seqs=max_num_seqs, num_blocks=40)
    for number, (num_prompt, max_tokens, queue_s, first_s, total_s, owner) in enumerate(asks):
        loop.add(
            make_request(
                f"r{number}",
                num_prompt,
                max_tokens,
                queue_deadline_s=queue_s,
                first_token_deadline_s=first_s,
                deadline_s=total_s,
                owner=f"owner-{owner}",
            )
        )
    step_s = 0.1
    while loop.scheduler.has_work:
        loop.step(step_s)
        for name, request in loop.requests.items():
            if name in loop.ends:
                continue
            due = {"timeout"} if loop.tokens[name] else {"timeout", "timeout.first_token"}
            ends_s = [one.end_s for one in request.deadlines if one.param in due]
            assert all(loop.clock.now_s <= end_s + 2 * step_s for end_s in ends_s)
    for name, end in loop.ends.items():
        request = loop.requests[name]
        if end.finish_reason is FinishReason.ERROR:
            param, _ = error_of(loop, name)
            assert param in [one.param for one in request.deadlines]
        else:
            assert len(loop.tokens[name]) == request.sampling.max_tokens
    loop.check_idle()
