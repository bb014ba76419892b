"""The loop when a step fails: requests end with an error, later ones are served, lasting failure ends the process."""

from __future__ import annotations

import itertools

import pytest

from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason
from qanat.engine.core import MAX_FAILURES_IN_A_ROW, EngineCore
from tests.support.step_loop import StepLoop, make_request


@pytest.fixture(params=[0, 1], ids=["plain", "overlapped"])
def depth(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def make_core(depth: int) -> tuple[EngineCore, StepLoop]:
    loop = StepLoop(overlap_depth=depth)
    return EngineCore(loop.scheduler, loop.executor, loop.clock), loop


def run(core: EngineCore) -> list[RequestOutput]:
    """Terminal outputs until nothing is left to do."""
    ends = []
    for _ in range(100):
        if not core.has_work:
            return ends
        ends += [output for output in core.step() if output.finish_reason is not None]
    raise AssertionError("the core never came to rest")


def test_a_failed_step_ends_its_requests_and_the_next_ones_are_served(depth: int) -> None:
    core, loop = make_core(depth)
    for request_id in "ab":
        core.add(make_request(request_id, 20))
    core.step()
    loop.executor.num_failures = 1
    ends = run(core)
    assert {(end.request_id, end.finish_reason, end.error_code) for end in ends} == {
        ("a", FinishReason.ERROR, "internal_error"),
        ("b", FinishReason.ERROR, "internal_error"),
    }
    assert "failed" in ends[0].error_message
    loop.cache.check_integrity()
    assert loop.cache.usage == 0
    core.add(make_request("c", 20, max_tokens=3))
    assert [end.finish_reason for end in run(core)] == [FinishReason.LENGTH]


def test_lasting_failure_ends_the_loop(depth: int) -> None:
    core, loop = make_core(depth)
    loop.executor.num_failures = (1 + depth) * MAX_FAILURES_IN_A_ROW
    with pytest.raises(RuntimeError):
        for i in range(MAX_FAILURES_IN_A_ROW):
            core.add(make_request(f"r{i}", 20))
            run(core)


def test_a_success_between_failures_starts_the_count_anew(depth: int) -> None:
    core, loop = make_core(depth)
    for i in range(2 * MAX_FAILURES_IN_A_ROW):
        core.add(make_request(f"r{i}", 20, max_tokens=3))
        loop.executor.num_failures = i % MAX_FAILURES_IN_A_ROW != 0
        assert len(run(core)) == 1


def test_a_refused_request_ends_like_any_other(depth: int) -> None:
    core, _ = make_core(depth)
    core.add(make_request("long", 5000))
    (end,) = run(core)
    assert (end.finish_reason, end.error_code) == (FinishReason.ERROR, "context_length_exceeded")


def test_the_time_of_steps_and_of_the_exchanges_in_them_is_told() -> None:
    loop = StepLoop()
    ticks = itertools.count()
    core = EngineCore(loop.scheduler, loop.executor, lambda: float(next(ticks)))
    loop.executor.collective_s = 0.25
    core.add(make_request("a", 20, max_tokens=3))
    run(core)
    stats = core.stats()
    assert (stats.step_s, stats.collective_s) == (float(core.num_steps), 0.25)
