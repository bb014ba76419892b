"""The circuit breaker, against a model of what it promises, for any order of calls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qanat.router.breaker import Breaker, BreakerRules, BreakerState

RULES = BreakerRules(
    max_consecutive=3, min_calls=10, max_share=0.5, window_s=10, open_s=1, max_open_s=8, num_trials=2
)


def opened(breaker: Breaker, now_s: float = 0.0) -> Breaker:
    for _ in range(RULES.max_consecutive):
        breaker.failed(now_s, "broken")
    assert breaker.state is BreakerState.OPEN
    return breaker


def test_failures_in_a_row_open_it_and_one_success_between_them_does_not() -> None:
    breaker = Breaker(RULES)
    breaker.failed(0)
    breaker.failed(0)
    breaker.succeeded(0)
    breaker.failed(0)
    breaker.failed(0)
    assert breaker.state is BreakerState.CLOSED
    breaker.failed(0, "no answer")
    assert breaker.state is BreakerState.OPEN
    assert (breaker.last_error, breaker.num_opened) == ("no answer", 1)


def test_half_of_the_calls_failing_opens_it() -> None:
    breaker = Breaker(RULES)
    for number in range(5):
        assert breaker.state is BreakerState.CLOSED
        breaker.succeeded(number)
        breaker.failed(number)
    assert breaker.state is BreakerState.OPEN


def test_failures_of_long_ago_do_not_count() -> None:
    breaker = Breaker(RULES)
    for number in range(4):
        breaker.failed(number)
        breaker.succeeded(number)
    for number in range(6):
        breaker.succeeded(20 + number)
    breaker.failed(26)
    breaker.failed(26)
    assert breaker.state is BreakerState.CLOSED


def test_trials_close_it_or_open_it_for_longer_up_to_a_bound() -> None:
    breaker = opened(Breaker(RULES))
    now_s = 0.0
    for span_s in (1, 2, 4, 8, 8):
        breaker.tick(now_s + span_s - 0.01)
        assert breaker.state is BreakerState.OPEN
        assert 0 < breaker.retry_after_s(now_s + span_s - 0.01) <= 0.02
        now_s += span_s
        breaker.tick(now_s)
        assert breaker.state is BreakerState.HALF_OPEN
        breaker.failed(now_s)
    breaker.tick(now_s + 8)
    breaker.succeeded(now_s + 8)
    assert breaker.state is BreakerState.HALF_OPEN
    breaker.succeeded(now_s + 8)
    assert breaker.state is BreakerState.CLOSED
    opened(breaker, now_s + 9)
    assert breaker.retry_after_s(now_s + 9) == 1


events = st.lists(st.tuples(st.sampled_from(["ok", "fail", "tick"]), st.floats(0, 3)), max_size=120)


@given(events)
def test_its_promises_hold_for_any_order_of_events(steps: list[tuple[str, float]]) -> None:
    breaker = Breaker(RULES)
    now_s, num_row = 0.0, 0
    for what, later_s in steps:
        now_s += later_s
        before = breaker.state
        if what == "tick":
            breaker.tick(now_s)
        elif what == "ok":
            breaker.succeeded(now_s)
            num_row = 0
        else:
            breaker.failed(now_s)
            num_row = num_row + 1 if before is BreakerState.CLOSED else 0
        after = breaker.state
        if before is BreakerState.CLOSED and num_row >= RULES.max_consecutive:
            assert after is BreakerState.OPEN
        if before is BreakerState.OPEN:
            assert after is BreakerState.OPEN or (what == "tick" and after is BreakerState.HALF_OPEN)
        if before is BreakerState.HALF_OPEN and what == "fail":
            assert after is BreakerState.OPEN
        if before is BreakerState.HALF_OPEN and after is BreakerState.CLOSED:
            assert what == "ok"
        assert 0 <= breaker.retry_after_s(now_s) <= RULES.max_open_s
        if after is not BreakerState.CLOSED:
            num_row = 0
    breaker.tick(now_s + RULES.max_open_s)
    assert breaker.state is not BreakerState.OPEN  # it never stays open for good
