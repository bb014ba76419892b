"""Engines behind late and lossy wires, reset between any two bytes: streams go on, leaving is told, errors stay."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from qanat.config.engine_config import ServerOptions
from tests.router.routing import CHAT, COMPLETIONS, Routed, comparable, routed, run
from tests.router.stub_engines import Fault, StubEngine, stubs
from tests.support.app_server import AppServer, serving
from tests.support.wire import Wire, wires

ROUGH = {"delay_s": 0.003, "jitter_s": 0.004, "loss": 0.01, "max_piece": 40}
BODY = {"messages": [{"role": "user", "content": "hi"}], "stream_options": {"include_usage": True}}
WORDS = ["It", " is", " €", " 42", ".", " Yes"]
ERROR = {"error": {"message": "stub", "code": 400}}


@pytest.fixture(scope="module")
def engine() -> Iterator[AppServer]:
    with serving(ServerOptions(allow_resume=True)) as running:
        running.say(WORDS)
        yield running
        running.wait_until_idle()


@contextlib.asynccontextmanager
async def behind_wires(*engines: StubEngine, **options: float) -> AsyncIterator[tuple[Routed, list[Wire]]]:
    """A router in front of these engines, each of them behind a rough wire."""
    async with (
        stubs(*engines),
        wires([each.port for each in engines], **ROUGH) as roads,
        routed(*(f"{road.url},kind=vllm" for road in roads), **options) as router,
    ):
        yield router, roads


@pytest.mark.parametrize("first", [1, 60, 200])
def test_a_stream_reset_between_any_two_bytes_is_the_whole_stream(engine: AppServer, first: int) -> None:
    """In its head, in the middle of events, and again where it goes on."""
    response = engine.http.post(CHAT, json={**BODY, "stream": True})
    expected = comparable(response.content)
    port = httpx.URL(engine.url).port
    assert port is not None

    async def look() -> None:
        async with wires([port] * 2, **ROUGH) as roads:
            async with routed(*(f"{road.url},kind=qanat" for road in roads)) as router:
                for num_bytes in range(first, len(response.content), 601):
                    roads[0].cuts, roads[1].cuts = [num_bytes, num_bytes // 2 + 1], [num_bytes]
                    assert comparable(await router.stream(CHAT, BODY)) == expected, num_bytes

    run(look())


def test_a_client_that_leaves_is_told_to_the_engine_over_a_late_wire() -> None:
    async def look() -> None:
        engine = StubEngine(faults=[Fault("stall", num_events=3)])
        async with behind_wires(engine) as (router, _):
            body = {"model": "m", "prompt": "p", "stream": True}
            async with router.http.stream("POST", COMPLETIONS, json=body) as response:
                await anext(response.aiter_bytes())
                assert (engine.num_open, engine.num_left) == (1, 0)
            while engine.num_open:
                await asyncio.sleep(0.01)
            assert engine.num_left == 1

    run(look())


def test_an_engines_refusal_arrives_as_it_is_in_pieces_and_when_its_first_telling_is_cut() -> None:
    async def look() -> None:
        engine = StubEngine(faults=[Fault("status", status=400) for _ in range(2)])
        async with behind_wires(engine, max_retries=1) as (router, (road,)):
            road.cuts = [100]
            response = await router.http.post(COMPLETIONS, json={"model": "m", "prompt": "p"})
            assert (response.status_code, response.json()) == (400, ERROR)
            assert len(engine.asked) == 2

    run(look())


@pytest.mark.parametrize("is_stream", [False, True])
def test_engines_that_are_always_cut_off_end_in_an_error_and_never_in_an_empty_answer(
    is_stream: bool,
) -> None:
    async def look() -> None:
        engines = [StubEngine(), StubEngine()]
        async with behind_wires(*engines) as (router, roads):
            for road in roads:
                road.cuts = [1 + 20 * number for number in range(20)]
            body = {"model": "m", "prompt": "p", "max_tokens": 9, "stream": is_stream}
            response = await router.http.post(COMPLETIONS, json=body)
            last = response.content.rstrip().rpartition(b"data: ")[2] if is_stream else response.content
            assert json.loads(last)["error"]["message"]
            assert response.status_code >= 500 or (is_stream and b"[DONE]" not in response.content)

    run(look())
