"""A core that dies is replaced, after a wait, so many times; what ran ends with an error."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable

import pytest

from qanat.core.errors import EngineDeadError, EngineRestartingError, QanatError
from qanat.core.sampling_params import SamplingParams
from qanat.engine.async_engine import AsyncEngine
from qanat.engine.core_line import CoreLine, Listener
from qanat.engine.messages import Ready, StepDone
from qanat.engine.process_client import ProcessClient
from qanat.engine.replica import Seat, Started
from qanat.engine.restarts import MAX_DELAY_S, WINDOW_S, Comeback, RestartBudget
from qanat.engine.tokenizer import load_tokenizer
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


def test_who_is_refused_meanwhile_is_told_when_the_model_is_loaded() -> None:
    clock = FakeClock()
    comeback = Comeback("The engine process was killed.", delay_s=2.0, start_s=90.5, clock=clock)
    error = comeback.error()
    assert (
        error.retry_after_s == 93 and "killed" in error.message and "try again in about 93 s" in error.message
    )
    clock.advance(60.0)
    assert comeback.error().retry_after_s == 33
    clock.advance(1000.0)
    assert comeback.error().retry_after_s == 1, "it takes longer than the last time; any moment now"


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


@pytest.mark.asyncio
async def test_a_restart_that_the_system_does_not_allow_is_an_attempt_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await AsyncEngine.start(tiny_config(), restarts=RestartBudget(8))
    try:
        with monkeypatch.context() as no_room:
            no_room.setattr(tempfile, "tempdir", "/no/such/folder")  # there is no place for the sockets
            assert engine.core_pid is not None
            os.kill(engine.core_pid, signal.SIGKILL)
            await wait_until(lambda: "could not be restarted: " in caplog.text)
            assert "No such file or directory" in caplog.text
            await wait_until(lambda: engine.num_restarts >= 2)
        await wait_until(lambda: engine.health().is_healthy)
        short = SamplingParams(max_tokens=2, ignore_eos=True)
        assert [event async for event in engine.generate([7], short)]
    finally:
        await engine.shutdown()


@pytest.mark.asyncio
async def test_restarts_that_the_system_never_allows_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await AsyncEngine.start(tiny_config(), restarts=RestartBudget(1))
    try:
        monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
        assert engine.core_pid is not None
        os.kill(engine.core_pid, signal.SIGKILL)
        await wait_until(lambda: not engine.health().is_alive)
        assert not engine.health().is_restarting and "SIGKILL" in engine.health().reason
        with pytest.raises(EngineDeadError):
            await anext(engine.generate([7], SamplingParams()))
    finally:
        await engine.shutdown()


@pytest.mark.asyncio
async def test_a_defect_while_the_core_is_replaced_is_the_end_and_said() -> None:
    deaths: list[QanatError] = []

    async def on_step(step: StepDone) -> None:
        del step

    def on_replaced(ready: Ready) -> None:
        raise RuntimeError(f"no use for {len(ready.op_table)} ops")

    client = ProcessClient()
    await client.start(tiny_config())
    line = CoreLine(
        client,
        tiny_config(),
        RestartBudget(3),
        Listener(on_step, deaths.append, on_replaced),
        make_client=ProcessClient,
    )
    try:
        assert line.pid is not None
        os.kill(line.pid, signal.SIGKILL)
        await wait_until(lambda: not line.health(0).is_alive)
        assert isinstance(line.death, EngineDeadError) and "no use for" in line.death.message
        assert [type(death) for death in deaths] == [EngineDeadError, EngineDeadError]
    finally:
        await line.close()


@pytest.mark.asyncio
async def test_the_time_of_the_last_start_is_in_the_answer_of_a_restarting_engine() -> None:
    client = ProcessClient()
    ready = await client.start(tiny_config())
    assert client.start_s > 0.0
    client.start_s = 500.0  # a large model
    engine = AsyncEngine(
        load_tokenizer(tiny_config())[0], [Started(Seat(restarts=RestartBudget(3)), client, ready)]
    )
    try:
        assert engine.core_pid is not None
        os.kill(engine.core_pid, signal.SIGKILL)
        await wait_until(lambda: engine.health().is_restarting)
        with pytest.raises(EngineRestartingError) as caught:
            await anext(engine.generate([7], SamplingParams()))
        assert 300 <= caught.value.retry_after_s <= 501
    finally:
        await engine.shutdown()
