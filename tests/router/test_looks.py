"""Health over real sockets and processes: who is frozen is out, who is slow is not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator

from qanat.router.health import Monitor
from qanat.router.http.upstream import Upstream
from qanat.router.lease import Lease
from qanat.router.model import Endpoint, EndpointState, EngineKind
from qanat.router.policies import LeastTokens
from qanat.router.pool import Pool
from qanat.router.vitals import VitalRules
from tests.house.checkout import ROOT
from tests.router.making import call
from tests.router.routing import COMPLETIONS, routed, run
from tests.router.test_app import FAST, until
from tests.router.tiny_engine import TinyEngine
from tests.support.server_process import free_port

READY, DOWN = EndpointState.READY, EndpointState.DOWN


@contextlib.asynccontextmanager
async def watched(
    port: int, timeout_s: float = 0.1, stall_s: float = 0.1
) -> AsyncIterator[tuple[Pool, Endpoint, Monitor]]:
    pool, upstream = Pool(LeastTokens()), Upstream()
    monitor = Monitor(pool, upstream, 0.02, timeout_s, VitalRules(stall_s=stall_s))
    endpoint = Endpoint("e", "127.0.0.1", port)
    monitor.start()
    pool.add(endpoint)
    try:
        yield pool, endpoint, monitor
    finally:
        await monitor.close()
        upstream.close()


def test_a_frozen_engine_is_out_its_requests_are_told_and_it_comes_back() -> None:
    async def test() -> None:
        async with TinyEngine().served() as engine, watched(engine.port) as (pool, endpoint, _):
            told: list[str] = []
            with pool.lease(endpoint, call({})) as lease:
                lease.when_lost(told.append)
                engine.is_frozen = True
                await until(lambda: bool(told))
                assert endpoint.state is DOWN and "did not begin to answer" in told[0]
                engine.is_frozen = False
                await until(lambda: endpoint.state is READY)

    run(test())


def test_an_engine_without_time_for_health_stays_while_its_streams_move() -> None:
    async def test() -> None:
        async with (
            TinyEngine(health=0).served() as engine,
            watched(engine.port, timeout_s=0.05) as (pool, endpoint, _),
        ):
            with pool.lease(endpoint, call({})) as lease:

                async def stream() -> None:
                    while True:
                        lease.tokens()
                        await asyncio.sleep(0.002)

                moving = asyncio.create_task(stream())
                await asyncio.sleep(0.3)  # six looks or fewer: on a slow machine it holds all the more easily
                assert endpoint.state is READY
                moving.cancel()
                await until(lambda: endpoint.state is DOWN)

    run(test())


def test_a_long_prefill_is_not_death() -> None:
    """Nothing moves, /health is good, counters stand still: one token tells."""

    async def test() -> None:
        async with TinyEngine().served() as engine, watched(engine.port, 60.0, 1.0) as (pool, endpoint, _):
            with pool.lease(endpoint, call({})):
                await until(lambda: len(engine.calls) >= 2)
                assert endpoint.state is READY
                assert all(b'"max_tokens":1' in each.body for each in engine.calls)

    run(test())


def test_an_engine_that_computes_no_token_is_out_though_its_health_is_good() -> None:
    async def test() -> None:
        async with (
            TinyEngine(status=500).served() as engine,
            watched(engine.port, 60.0, 0.05) as (pool, endpoint, _),
        ):
            told: list[str] = []
            with pool.lease(endpoint, call({})) as lease:
                lease.when_lost(told.append)
                await until(lambda: endpoint.state is DOWN)
            assert "computed no token" in told[0]
            engine.status = 200
            await until(lambda: endpoint.state is READY)

    run(test())


def test_the_engines_own_counters_are_read_while_nothing_moves() -> None:
    async def test() -> None:
        async with TinyEngine().served() as engine, watched(engine.port, 60.0, 60.0) as (pool, endpoint, _):
            with pool.lease(endpoint, call({})) as lease:
                await until(lambda: engine.num_metrics >= 3)
                lease.tokens()
            await until(lambda: endpoint.num_running == 0)
            assert engine.calls == [] and endpoint.state is READY

    run(test())


def test_what_serves_is_learned_and_learned_anew_after_a_restart() -> None:
    async def test() -> None:
        async with TinyEngine("one").served() as engine:
            async with watched(engine.port, 60.0, 60.0) as (_, endpoint, monitor):
                await until(lambda: endpoint.models == {"one"})
                assert endpoint.kind is EngineKind.VLLM and endpoint.max_model_len == 4096
                assert monitor.models.cards[endpoint][0]["id"] == "one"
                engine.health = 503
                await until(lambda: endpoint.state is DOWN)
                engine.model, engine.health = "other", 200
                await until(lambda: endpoint.state is READY and endpoint.models == {"other"})

    run(test())


@contextlib.asynccontextmanager
async def process(num_tokens: int, pace_s: float, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """An engine as a process of its own, which listens when this begins."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src{os.pathsep}{ROOT}"}
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.router.tiny_engine",
        str(num_tokens),
        str(pace_s),
        str(port),
        stdout=asyncio.subprocess.PIPE,
        env=environment,
        cwd=ROOT,
    )
    try:
        assert started.stdout is not None
        assert int(await started.stdout.readline()) == port
        yield started
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.send_signal(signal.SIGCONT)
            started.kill()
        await started.wait()


def test_a_stopped_process_is_out_and_others_serve() -> None:
    async def test() -> None:
        port = free_port()
        async with TinyEngine().served() as other, process(3, 0.0, port) as stopped:
            async with routed(
                f"127.0.0.1:{port}", other.url, health_interval_s=0.02, health_timeout_s=1.0
            ) as place:
                endpoint = place.router.pool.get(f"127.0.0.1:{port}")
                stopped.send_signal(signal.SIGSTOP)
                await until(lambda: endpoint.state is DOWN)
                for _ in range(4):
                    answer = await place.http.post(COMPLETIONS, json={"prompt": "x"})
                    assert f"endpoint=127.0.0.1:{other.port};" in answer.headers["x-qanat-router"]
                stopped.send_signal(signal.SIGCONT)
                await until(lambda: endpoint.state is READY)

    run(test())


def test_a_killed_process_is_out_at_once_and_back_when_another_stands_there() -> None:
    async def test() -> None:
        port = free_port()
        async with TinyEngine().served() as other:
            async with process(3, 0.0, port) as killed:
                async with routed(f"127.0.0.1:{port}", other.url, **FAST) as place:
                    endpoint = place.router.pool.get(f"127.0.0.1:{port}")
                    killed.kill()
                    await killed.wait()
                    for _ in range(4):
                        assert (await place.http.post(COMPLETIONS, json={"prompt": "x"})).status_code == 200
                    await until(lambda: endpoint.state is DOWN)
                    async with process(3, 0.0, port):
                        await until(lambda: endpoint.state is READY)

    run(test())


def test_leases_count_what_looks_see() -> None:
    endpoint = Endpoint("e", "h", 1)
    lease = Lease(endpoint, call({}), 5, lambda lease: None)
    lease.moved()
    lease.tokens(2)
    assert endpoint.num_pieces == 2
