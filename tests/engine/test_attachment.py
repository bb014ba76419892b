"""A front end that comes when some cores of another process are dead: it knows all of them, and starts none."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from qanat.config.parallel_settings import ParallelSettings
from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import EngineDeadError, EngineRestartingError
from qanat.core.sampling_params import SamplingParams
from qanat.engine.async_engine import AsyncEngine
from qanat.engine.attached_client import AttachedClient, CoreNews
from qanat.engine.attachment import attached
from qanat.engine.messages import OpenFrontEnd
from qanat.engine.process_client import ProcessClient
from qanat.engine.replica import Seat
from qanat.engine.restarts import RestartBudget
from qanat.server.front_ends.process import FollowedBudget
from tests.worker.tiny_model import tiny_config

pytestmark = pytest.mark.asyncio
WAIT_S = 120.0
SHORT = SamplingParams(max_tokens=6, ignore_eos=True)


def config(num_replicas: int) -> ResolvedConfig:
    parallel = ParallelSettings(data_parallel_size=num_replicas, num_local_replicas=num_replicas)
    return dataclasses.replace(tiny_config(), parallel=parallel)


async def front_end(news: list[CoreNews]) -> AsyncEngine:
    """The engine of front end 1."""
    seats = [Seat(rank, partial(AttachedClient, 1, one), _budget(one)) for rank, one in enumerate(news)]
    begin = partial(attached, dict(enumerate(news)))
    return await AsyncEngine.start(config(len(news)), seats=seats, begin=begin)


def _budget(news: CoreNews) -> RestartBudget:
    return FollowedBudget(5, news=news)


@contextlib.asynccontextmanager
async def core(news: CoreNews) -> AsyncIterator[ProcessClient]:
    """A core that knows front end 1."""
    owner = ProcessClient()
    try:
        async with asyncio.timeout(WAIT_S):
            await owner.start(config(1))
            await owner.send(OpenFrontEnd(1))
            news.on_up(str(owner.folder), owner.pid, owner.start_s)
            yield owner
    finally:
        await owner.stop()


def child_pids() -> set[str]:
    """Of this process."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            found.update((task / "children").read_text().split())
    return found


@pytest.mark.parametrize("num_replicas", [1, 2])
async def test_with_all_cores_dead_for_good_it_is_dead_and_starts_none(num_replicas: int) -> None:
    news = [CoreNews() for _ in range(num_replicas)]
    for one in news:
        one.on_down("It was killed.", None)
    children = child_pids()
    with pytest.raises(EngineDeadError, match="It was killed"):
        async with asyncio.timeout(WAIT_S):
            await front_end(news)
    assert child_pids() <= children
    with pytest.raises(EngineDeadError):
        await AsyncEngine.start(config(1), seats=[], begin=partial(attached, {}))


async def test_it_serves_with_the_one_that_is_up_and_the_other_joins_when_it_is() -> None:
    news = [CoreNews(), CoreNews()]
    news[0].on_down("It was killed.", 0.0)
    async with core(news[1]):
        engine = await front_end(news)
        try:
            assert [event async for event in engine.generate([7], SHORT)]
            assert [rank for rank, one in engine.health().replicas.items() if one.is_healthy] == [1]
            with pytest.raises(EngineRestartingError, match="Replica 0: It was killed"):
                await anext(engine.generate([7], SHORT, data_parallel_rank=0))
            async with core(news[0]):
                while not engine.health().replicas[0].is_healthy:
                    await asyncio.sleep(0.01)
                assert [event async for event in engine.generate([7], SHORT, data_parallel_rank=0)]
        finally:
            await engine.shutdown()


async def test_one_that_is_dead_for_good_is_known_as_dead() -> None:
    news = [CoreNews(), CoreNews()]
    news[0].on_down("It was killed.", None)
    async with core(news[1]):
        engine = await front_end(news)
        try:
            health = engine.health()
            assert {rank: one.is_alive for rank, one in health.replicas.items()} == {0: False, 1: True}
            assert health.is_healthy and "Replica 0: It was killed" in health.reason
            with pytest.raises(EngineDeadError, match="Replica 0: It was killed"):
                await anext(engine.generate([7], SHORT, data_parallel_rank=0))
            assert sorted(engine.stats().replicas) == [0, 1]
        finally:
            await engine.shutdown()


async def test_it_waits_for_cores_whose_first_start_is_under_way() -> None:
    news = [CoreNews(), CoreNews()]
    starting = asyncio.create_task(front_end(news))
    async with core(news[0]), core(news[1]):
        engine = await starting
        try:
            assert all(one.is_healthy for one in engine.health().replicas.values())
        finally:
            await engine.shutdown()
