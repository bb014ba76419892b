"""Two real cores behind one front end."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from qanat.config.parallel_settings import ParallelSettings
from qanat.config.profiler import ProfilerSettings
from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import (
    CapacityError,
    EngineDeadError,
    EngineRestartingError,
    InvalidRequestError,
    ProfilerStateError,
    QueueFullError,
)
from qanat.core.sampling_params import SamplingParams
from qanat.engine.async_engine import AsyncEngine
from qanat.engine.replica import Replica
from qanat.engine.restarts import RestartBudget
from tests.support.stopped import stopped
from tests.worker.tiny_model import tiny_config

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAIT_S = 60.0
ENDLESS = SamplingParams(max_tokens=4000, ignore_eos=True, temperature=0.0)
SHORT = SamplingParams(max_tokens=6, ignore_eos=True, temperature=0.0)


def two_replicas(**limits: Any) -> ResolvedConfig:
    limits = {"max_model_len": 4096, "max_num_seqs": 2, "max_waiting_requests": 1, **limits}
    parallel = ParallelSettings(data_parallel_size=2, num_local_replicas=2)
    return dataclasses.replace(tiny_config(**limits), parallel=parallel)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[AsyncEngine]:
    started = await AsyncEngine.start(two_replicas(), restarts=RestartBudget(3))
    yield started
    await started.shutdown()


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def tokens_of(engine: AsyncEngine, prompt: list[int], rank: int | None = None) -> list[int]:
    events = engine.generate(prompt, SHORT, data_parallel_rank=rank)
    return [token_id async for event in events for token_id in event.token_ids]


def replica(engine: AsyncEngine, rank: int) -> Replica:
    return next(one for one in engine.replicas if one.rank == rank)


def num_pending(engine: AsyncEngine) -> list[int]:
    return [one.num_pending for one in engine.health().replicas.values()]


async def begin(engine: AsyncEngine, num_calls: int, rank: int | None = None) -> list[Any]:
    """Calls that have had a token and go on; to be closed."""
    calls = [engine.generate([7, 8 + i], ENDLESS, data_parallel_rank=rank) for i in range(num_calls)]
    for call in calls:
        await anext(call)
    return calls


async def close(engine: AsyncEngine, calls: list[Any]) -> None:
    for call in calls:
        await call.aclose()
    await wait_until(lambda: all(one.num_running == 0 for one in engine.stats().replicas.values()))


async def test_both_get_work_and_each_counts_its_own(engine: AsyncEngine) -> None:
    calls = await begin(engine, 4)
    assert num_pending(engine) == [2, 2]
    stats = engine.stats()
    assert [one.num_running for one in stats.replicas.values()] == [2, 2]
    assert stats.num_running == 4 and stats.num_prompt_tokens >= 8
    await close(engine, calls)


async def test_all_choices_of_a_call_go_to_one_replica(engine: AsyncEngine) -> None:
    call = engine.generate([7, 8], endless_choices(2))
    await anext(call)
    assert sorted(num_pending(engine)) == [0, 2]
    await close(engine, [call])


def endless_choices(n: int) -> SamplingParams:
    return SamplingParams(n=n, max_tokens=4000, ignore_eos=True, temperature=1.0, seed=1)


async def test_a_long_prompt_sends_the_next_calls_elsewhere(engine: AsyncEngine) -> None:
    pid = replica(engine, 0).line.pid
    assert pid is not None
    with stopped(pid):  # so that the prompt stays uncomputed
        params = SamplingParams(max_tokens=6, ignore_eos=True)
        long_call = engine.generate(list(range(7, 57)) * 40, params, data_parallel_rank=0)
        waiting = asyncio.ensure_future(anext(long_call))
        await wait_until(lambda: num_pending(engine)[0] == 1)
        assert replica(engine, 0).load.num_tokens == 2000
        calls = await begin(engine, 2)
        assert num_pending(engine) == [1, 2]
    await waiting
    await close(engine, [long_call, *calls])


@pytest.mark.slow
async def test_the_same_tokens_wherever_they_are_computed(engine: AsyncEngine) -> None:
    alone = await AsyncEngine.start(tiny_config(max_model_len=4096))
    try:
        prompts = [[7], [9, 11, 13], list(range(5, 90))]
        expected = [await tokens_of(alone, prompt) for prompt in prompts]
    finally:
        await alone.shutdown()
    for rank in (0, 1, None):
        assert [await tokens_of(engine, prompt, rank) for prompt in prompts] == expected


async def test_a_pinned_call_goes_where_it_is_sent(engine: AsyncEngine) -> None:
    calls = await begin(engine, 2, rank=1)
    assert num_pending(engine) == [0, 2]
    await close(engine, calls)
    with pytest.raises(InvalidRequestError, match="no replica 2 here; there is: 0, 1") as caught:
        await anext(engine.generate([7], SHORT, data_parallel_rank=2))
    assert caught.value.param == "data_parallel_rank"


async def test_a_call_is_refused_only_when_each_replica_is_full(engine: AsyncEngine) -> None:
    running = await begin(engine, 4)
    queued = [asyncio.ensure_future(anext(engine.generate([9, i], ENDLESS))) for i in (7, 8)]
    await wait_until(lambda: [one.num_waiting for one in engine.stats().replicas.values()] == [1, 1])
    refused = [one.metrics.snapshot(None).num_finished for one in engine.replicas]
    with pytest.raises(QueueFullError):
        await anext(engine.generate([9], ENDLESS))
    assert refused == [one.metrics.snapshot(None).num_finished for one in engine.replicas]
    for task in queued:
        task.cancel()
    await asyncio.gather(*queued, return_exceptions=True)
    await close(engine, running)


async def test_a_call_that_finds_a_full_queue_moves_on_to_the_next(engine: AsyncEngine) -> None:
    running = await begin(engine, 2, rank=0)
    queued = engine.generate([9], SHORT, data_parallel_rank=0)
    waiting = asyncio.ensure_future(anext(queued))
    await wait_until(lambda: engine.stats().replicas[0].num_waiting == 1)
    with pytest.raises(QueueFullError):
        await tokens_of(engine, [9], rank=0)
    replica(engine, 1).load.add("made up", 10_000)  # so that the full one is asked first
    try:
        before = engine.stats().replicas[1].num_output_tokens
        assert len(await tokens_of(engine, [9])) == 6
        assert engine.stats().replicas[1].num_output_tokens == before + 6
    finally:
        replica(engine, 1).load.end("made up")
    await close(engine, running)
    await waiting
    await close(engine, [queued])


async def test_death_ends_only_the_calls_of_that_replica_and_it_comes_back(engine: AsyncEngine) -> None:
    before = engine.stats().num_finished["error"]
    dying, living = await begin(engine, 2, rank=0), await begin(engine, 1, rank=1)
    pid = replica(engine, 0).line.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    for call in dying:
        with pytest.raises(EngineDeadError, match="Replica 0: .*SIGKILL"):
            async with asyncio.timeout(WAIT_S):
                while True:
                    await anext(call)
    assert engine.stats().num_finished["error"] == before + 2
    health = engine.health()
    assert (health.is_alive, health.is_healthy, health.is_restarting) == (True, True, False)
    assert [one.is_restarting for one in health.replicas.values()] == [True, False]
    assert "Replica 0" in health.reason
    with pytest.raises(EngineRestartingError):
        await tokens_of(engine, [7], rank=0)
    assert len(await tokens_of(engine, [7])) == 6
    for _ in range(5):
        await anext(living[0])
    await wait_until(lambda: engine.health().replicas[0].is_healthy)
    assert len(await tokens_of(engine, [7], rank=0)) == 6
    assert [one.num_restarts for one in engine.stats().replicas.values()] == [1, 0]
    assert engine.num_restarts == 1
    await anext(living[0])
    await close(engine, living)


@pytest.mark.slow
async def test_a_profile_is_of_all_replicas(tmp_path: Path) -> None:
    config = dataclasses.replace(two_replicas(), profiler=ProfilerSettings(str(tmp_path)))
    engine = await AsyncEngine.start(config)
    try:
        with pytest.raises(ProfilerStateError, match="No profile"):
            await engine.stop_profile()
        await engine.start_profile()
        with pytest.raises(ProfilerStateError, match="already"):
            await engine.start_profile()
        for rank in (0, 1):
            await tokens_of(engine, [7], rank)
        report = await engine.stop_profile()
        assert report.num_steps >= 12
        pids = {str(one.line.pid) for one in engine.replicas}
        assert {pid for pid in pids for file in report.files if f"-{pid}-" in file} == pids
        assert all(Path(file).is_file() for file in report.files)
    finally:
        await engine.shutdown()


@pytest.mark.slow
async def test_the_engine_is_dead_when_all_replicas_are() -> None:
    engine = await AsyncEngine.start(two_replicas())
    try:
        for rank, is_alive in ((1, True), (0, False)):
            (call,) = await begin(engine, 1, rank=rank)
            pid = replica(engine, rank).line.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(EngineDeadError):
                async with asyncio.timeout(WAIT_S):
                    while True:
                        await anext(call)
            assert engine.health().is_alive == is_alive
        with pytest.raises(EngineDeadError, match="Replica 0"):
            await tokens_of(engine, [7])
    finally:
        await engine.shutdown()


@pytest.mark.slow
async def test_a_start_that_fails_leaves_no_replica() -> None:
    with pytest.raises(CapacityError):
        await AsyncEngine.start(
            dataclasses.replace(
                two_replicas(), cache=dataclasses.replace(two_replicas().cache, available_bytes=1000)
            )
        )
