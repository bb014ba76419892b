from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.scheduler.drain_pace import MIN_ADMISSIONS, DrainPace


def test_nothing_is_known_before_a_queue_has_moved() -> None:
    pace = DrainPace()
    assert pace.s_per_request is None
    for step in range(100):  # everybody finds a place: that says nothing about a queue
        pace.observe(float(step), 5, False)
    assert pace.s_per_request is None
    pace.observe(100.0, 0, True)
    pace.observe(101.0, int(MIN_ADMISSIONS) - 1, True)
    assert pace.s_per_request is None
    pace.observe(102.0, 2, True)
    assert pace.s_per_request == pytest.approx(0.5, rel=0.05)


@given(st.floats(0.01, 5), st.integers(1, 8))
def test_a_steady_queue_is_measured_exactly(step_s: float, num_admitted: int) -> None:
    pace = DrainPace()
    for step in range(400):
        pace.observe(step * step_s, num_admitted, True)
    assert pace.s_per_request == pytest.approx(step_s / num_admitted, rel=0.05)


def test_new_behaviour_takes_over_within_a_minute_or_two() -> None:
    pace = DrainPace()
    now_s = 0.0
    for interval_s, num_steps in ((0.1, 600), (2.0, 60)):
        for _ in range(num_steps):
            now_s += interval_s
            pace.observe(now_s, 1, True)
    assert pace.s_per_request == pytest.approx(2.0, rel=0.3)


def test_an_empty_queue_leaves_what_was_measured() -> None:
    pace = DrainPace()
    for step in range(10):
        pace.observe(float(step), 1, True)
    known = pace.s_per_request
    pace.observe(10.0, 1, False)
    pace.observe(10_000.0, 1, False)
    pace.observe(10_001.0, 0, True)
    assert known is not None and pace.s_per_request == pytest.approx(known, rel=0.2)
