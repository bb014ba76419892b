"""PD-014 and PD-007 over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from contextlib import AsyncExitStack

import httpx
import pytest

from qanat.router.model import EndpointState
from tests.router.routing import CHAT, COMPLETIONS, Routed, routed, run
from tests.router.test_app import FAST, until
from tests.router.tiny_engine import TinyEngine
from tests.support.server_process import free_port

PREFIX = "the same beginning of everything " * 60


async def engines(stack: AsyncExitStack, num: int, **settings: object) -> list[TinyEngine]:
    made = [TinyEngine(**settings) for _ in range(num)]  # type: ignore[arg-type]
    return [await stack.enter_async_context(each.served()) for each in made]


async def ask(place: Routed, number: int) -> None:
    """One of the mix: chat and completions, another path, streams and not, long prefill with one token."""
    path = (CHAT, COMPLETIONS, "/v1/embeddings")[number % 3]
    fields: dict[str, object] = {"model": "tiny", "stream": number % 2 == 0 and path != "/v1/embeddings"}
    if path == CHAT:
        fields["messages"] = [{"role": "user", "content": PREFIX + str(number)}]
    else:
        fields["prompt" if path == COMPLETIONS else "input"] = PREFIX + str(number)
    if number % 5 == 0:
        fields["max_tokens"] = 1
    answer = await place.http.post(path, json=fields)
    assert answer.status_code == 200 and answer.content


@pytest.mark.parametrize("policy", ["prefix", "least-tokens", "power-of-two"])
def test_pd_014_load_is_counted_on_every_path_and_given_back(policy: str) -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            workers = await engines(stack, 8, pace=0.002)
            place = await stack.enter_async_context(routed(*(each.url for each in workers), policy=policy))
            place.http._transport._pool._max_connections = 200  # type: ignore[attr-defined]
            turns = asyncio.Semaphore(64)

            async def one(number: int) -> None:
                async with turns:
                    await ask(place, number)

            await asyncio.gather(*(one(number) for number in range(480)))
            served = [len(each.calls) for each in workers]
            assert sum(served) == 480 and max(served) < 2 * min(served)
            endpoints = list(place.router.pool.members)
            assert all(each.num_running == each.num_outstanding_tokens == 0 for each in endpoints)

    run(test())


def test_pd_014_every_kind_of_end_gives_the_load_back() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            (engine,) = await engines(stack, 1, num_tokens=50, pace=0.001)
            place = await stack.enter_async_context(routed(engine.url, max_retries=0, **FAST))
            (endpoint,) = place.router.pool.members

            def is_at_rest() -> bool:
                return (
                    endpoint.num_running
                    == endpoint.num_outstanding_tokens
                    == place.router.admission.num_inside
                    == 0
                )

            await ask(place, 0)
            assert is_at_rest()
            engine.status = 500
            answer = await place.http.post(COMPLETIONS, json={"prompt": "x"})
            assert answer.status_code >= 500
            assert is_at_rest()
            engine.status = 200
            body = {"prompt": "x", "stream": True}
            async with place.http.stream("POST", COMPLETIONS, json=body) as stream:
                async for _ in stream.aiter_bytes():
                    break  # the client leaves in the middle
            await until(is_at_rest)
            engine.gate = asyncio.Event()
            with contextlib.suppress(httpx.TimeoutException):
                await place.http.post(COMPLETIONS, json={"prompt": "x"}, timeout=0.05)
            await until(is_at_rest)

    run(test())


def test_a_pair_stands_in_for_an_engine_that_does_it_all_and_back() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            prefill, decode = await engines(stack, 2)
            port = free_port()
            async with TinyEngine().served(port) as whole:
                roles = (f"{prefill.url},role=prefill", f"{decode.url},role=decode")
                place = await stack.enter_async_context(routed(whole.url, endpoint=roles, **FAST))
                await place.http.post(COMPLETIONS, json={"prompt": "x"})
                assert [len(each.calls) for each in (whole, prefill, decode)] == [1, 0, 0]
            endpoint = place.router.pool.get(f"127.0.0.1:{port}")
            await until(lambda: endpoint.state is EndpointState.DOWN)
            assert (await place.http.post(COMPLETIONS, json={"prompt": "x"})).status_code == 200
            assert [len(each.calls) for each in (prefill, decode)] == [1, 1]
            async with TinyEngine().served(port) as whole:
                await until(lambda: endpoint.state is EndpointState.READY)
                assert (await place.http.post(COMPLETIONS, json={"prompt": "x"})).status_code == 200
                assert len(whole.calls) == 1

    run(test())


def test_a_failing_engine_is_left_alone_tried_and_taken_back() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            failing, other = await engines(stack, 2)
            failing.status = 500
            place = await stack.enter_async_context(routed(failing.url, other.url, **FAST))
            endpoint = place.router.pool.get(f"127.0.0.1:{failing.port}")
            statuses = []
            while endpoint.state is EndpointState.READY:
                statuses.append((await place.http.post(COMPLETIONS, json={"prompt": "x"})).status_code)
            assert endpoint.state is EndpointState.DOWN  # its breaker is open
            assert statuses.count(500) == len(failing.calls) == 5
            failing.status = 200
            answer = await place.http.post(COMPLETIONS, json={"prompt": "x"})
            if endpoint.state is EndpointState.DOWN:  # else it took long enough for a trial
                assert (answer.status_code, len(failing.calls)) == (200, 5)
            await until(lambda: endpoint.state is EndpointState.HALF_OPEN)
            reasons = []
            for _ in range(4):
                answer = await place.http.post(COMPLETIONS, json={"prompt": "x"})
                assert answer.status_code == 200
                reasons.append(answer.headers["x-qanat-router"].split("; ")[1])
            assert reasons[:2] == ["reason=trial"] * 2 and "reason=trial" not in reasons[2:]
            assert endpoint.state is EndpointState.READY

    run(test())


EVENTS = ("+p", "+d", "-p", "-d", "+P", "+D")
ORDERS = list(itertools.permutations(EVENTS))


QUARTERS = [pytest.param(ORDERS[part::4], id=f"quarter {part}", marks=pytest.mark.slow) for part in range(4)]


@pytest.mark.parametrize("orders", [pytest.param(ORDERS[::24], id="some"), *QUARTERS])
def test_pd_007_any_order_of_restarts_is_answered_whenever_a_pair_lives(
    orders: list[tuple[str, ...]],
) -> None:
    """Engines come and go at their addresses, and the router is told nothing of it."""

    async def test() -> None:
        async with AsyncExitStack() as stack:
            ports = {name: free_port() for name in "pd"}
            place = await stack.enter_async_context(
                routed(
                    prefiller_hosts=("127.0.0.1",),
                    prefiller_ports=(str(ports["p"]),),
                    decoder_hosts=("127.0.0.1",),
                    decoder_ports=(str(ports["d"]),),
                    **FAST,
                )
            )
            for order in orders:
                await follow(place, order, ports)

    run(test())


async def follow(place: Routed, order: tuple[str, ...], ports: dict[str, int]) -> None:
    """The events of one order, with a request after each; `p` and `P` take turns at one address."""
    running: dict[str, AsyncExitStack] = {}
    for event in order:
        name = event[1]
        side = name.lower()
        if event[0] == "+" and side not in running:
            running[side] = AsyncExitStack()
            await running[side].enter_async_context(TinyEngine().served(ports[side]))
        elif event[0] == "-" and side in running:
            await running.pop(side).aclose()
        answer = await place.http.post(COMPLETIONS, json={"prompt": "x"})
        if len(running) == 2:
            assert answer.status_code == 200, (order, event, answer.text)
        else:
            assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1, (order, event)
    for stack in running.values():
        await stack.aclose()
