"""Stalls are measured from what the core owes, logged once, and over when a step ends."""

from __future__ import annotations

import asyncio
import logging

import pytest

from qanat.engine.stall_watch import StallWatch
from tests.support.fake_clock import FakeClock

LIMIT_S = 2.0


def make() -> tuple[StallWatch, FakeClock]:
    clock = FakeClock(100.0)
    return StallWatch(LIMIT_S, clock), clock


def test_idle_is_never_a_stall() -> None:
    watch, clock = make()
    clock.advance(1e6)
    assert (watch.age_s, watch.is_stalled) == (0.0, False)
    watch.expect("a")
    assert (watch.age_s, watch.is_stalled) == (0.0, False)


@pytest.mark.parametrize("num_requests", [1, 1000])
def test_the_silence_counts_from_the_last_step_however_many_requests_there_are(num_requests: int) -> None:
    watch, clock = make()
    for i in range(num_requests):
        watch.expect(f"r{i}")
        clock.advance(LIMIT_S / num_requests)
    assert not watch.is_stalled
    clock.advance(0.001)
    assert watch.is_stalled
    watch.hear([])
    assert not watch.is_stalled
    clock.advance(LIMIT_S + 0.001)
    assert watch.is_stalled
    watch.hear([f"r{i}" for i in range(num_requests)])
    clock.advance(1e6)
    assert not watch.is_stalled


def test_a_core_that_is_gone_owes_nothing() -> None:
    watch, clock = make()
    watch.expect("a")
    clock.advance(LIMIT_S * 2)
    watch.forget()
    assert not watch.is_stalled


@pytest.mark.asyncio
async def test_each_stall_is_logged_once_with_the_stacks(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    watch = StallWatch(0.01, clock)
    num_asked = 0

    async def stacks() -> str:
        nonlocal num_asked
        num_asked += 1
        return "the stacks"

    async def settle() -> None:
        for _ in range(20):
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch.watch(stacks))
    with caplog.at_level(logging.INFO):
        for stall in (1, 2):
            watch.expect("a")
            await settle()
            assert num_asked == stall - 1
            clock.advance(5.0)
            async with asyncio.timeout(30):
                while num_asked < stall:
                    await asyncio.sleep(0.005)
            await settle()
            assert num_asked == stall
            watch.hear(["a"])
            watch.hear([])
    watching.cancel()
    assert caplog.text.count("the stacks") == 2
    assert caplog.text.count("Steps go on again after 5.0 s") == 2
