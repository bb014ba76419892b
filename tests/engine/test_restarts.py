"""A core that dies is replaced, after a wait, so many times; what ran ends with an error."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from qanat.core.errors import EngineDeadError, EngineRestartingError
from qanat.core.sampling_params import SamplingParams
from qanat.engine.async_engine import AsyncEngine
from qanat.engine.restarts import MAX_DELAY_S, WINDOW_S, RestartBudget
from tests.support.fake_clock import FakeClock
from tests.worker.tiny_model import tiny_config

WAIT_S = 120.0
ENDLESS = SamplingParams(max_tokens=4000, ignore_eos=True)


def test_waits_double_and_restarts_are_bounded_within_the_window() -> None:
    clock = FakeClock()
    budget = RestartBudget(7, clock)
    assert [budget.next_delay_s() for _ in range(8)] == [1, 2, 4, 8, 16, MAX_DELAY_S, MAX_DELAY_S, None]
    assert budget.num_restarts == 7
    clock.advance(WINDOW_S + 1)
    assert budget.next_delay_s() == 1


def test_the_oldest_restart_leaves_the_window_first() -> None:
    clock = FakeClock()
    budget = RestartBudget(2, clock)
    assert budget.next_delay_s() == 1
    clock.advance(WINDOW_S)
    assert (budget.next_delay_s(), budget.next_delay_s()) == (2, None)
    clock.advance(1)
    assert (budget.next_delay_s(), budget.next_delay_s()) == (2, None)


def test_none_are_allowed_unless_they_are_wished() -> None:
    assert RestartBudget().next_delay_s() is None


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def die(engine: AsyncEngine) -> None:
    """Kills the core under a request, which ends with the reason."""
    stream = engine.generate([7, 8], ENDLESS)
    await anext(stream)
    assert engine.core_pid is not None
    os.kill(engine.core_pid, signal.SIGKILL)
    with pytest.raises(EngineDeadError, match="killed by SIGKILL"):
        async with asyncio.timeout(WAIT_S):
            async for _ in stream:
                pass


@pytest.mark.asyncio
async def test_a_core_that_dies_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    engine = await AsyncEngine.start(tiny_config(max_model_len=4096), restarts=RestartBudget(2))
    short = SamplingParams(max_tokens=5, ignore_eos=True, temperature=0.0)
    try:
        tokens = [
            token for event in [e async for e in engine.generate([7], short)] for token in event.token_ids
        ]
        for num_restarts in (1, 2):
            await die(engine)
            health = engine.health()
            assert (health.is_alive, health.is_healthy, health.is_restarting) == (True, False, True)
            assert "SIGKILL" in health.reason
            with pytest.raises(EngineRestartingError, match="try again") as caught:
                await anext(engine.generate([7], short))
            assert caught.value.retry_after_s >= 1
            await wait_until(lambda: engine.health().is_healthy)
            assert engine.num_restarts == num_restarts
            again = [e async for e in engine.generate([7], short)]
            assert [token for event in again for token in event.token_ids] == tokens
        await die(engine)
        health = engine.health()
        assert (health.is_alive, health.is_restarting) == (False, False)
        with pytest.raises(EngineDeadError):
            await anext(engine.generate([7], short))
        assert "too often" in caplog.text and "restarted in 2 s" in caplog.text
    finally:
        await engine.shutdown()


@pytest.mark.asyncio
async def test_the_end_of_the_engine_ends_a_restart() -> None:
    engine = await AsyncEngine.start(tiny_config(), restarts=RestartBudget(5))
    first = engine.core_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await wait_until(lambda: engine.health().is_restarting)
    async with asyncio.timeout(WAIT_S):
        await engine.shutdown()
    assert not engine.health().is_healthy
