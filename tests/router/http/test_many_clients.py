"""Hundreds of clients that behave as badly as seeded chance makes them, and nothing left of them at the end."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

from qanat.router.http.errors import UpstreamError
from qanat.router.http.exchange import Downstream, respond_error
from qanat.router.http.front import Front
from qanat.router.http.limits import FrontLimits
from qanat.router.http.upstream import Timeouts, Upstream
from qanat.router.model import Call
from tests.router.http.wire import Client, EngineSide, connected, engine, run

pytestmark = pytest.mark.usefixtures("each_loop")

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = b"1000\r\n" + bytes(4096) + b"\r\n"


async def behave(chance: random.Random, client: Client) -> None:
    """One of the things that clients do; a whole answer must have the whole body."""
    kind = chance.choice(["whole", "leaves", "leaves", "pipelines", "garbage", "half", "resets"])
    if kind in ("whole", "pipelines"):
        num_requests = chance.randrange(2, 6) if kind == "pipelines" else 1
        for _ in range(num_requests):
            client.ask("POST", "/", b"x" * chance.randrange(1, 3000))
        for _ in range(num_requests):
            answer = await client.answer()
            assert (answer.status, len(answer.body)) == (200, 8 * 4096)
    elif kind in ("leaves", "resets"):
        client.ask("POST", "/", b"x")
        for _ in range(chance.randrange(0, 30)):
            await asyncio.sleep(0)
        if kind == "leaves":
            client.writer.close()
    elif kind == "garbage":
        client.send(chance.randbytes(chance.randrange(1, 2000)))
        await asyncio.sleep(0)
    else:
        client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nabc")
        await asyncio.sleep(0)


def test_nothing_is_left_of_clients_that_leave_break_off_or_send_garbage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chance = random.Random(5)

    async def script(side: EngineSide) -> None:
        while True:
            await side.request()
            side.send(HEAD)
            for _ in range(8):
                side.send(PIECE)
                await asyncio.sleep(0)
            side.send(b"0\r\n\r\n")

    async def test() -> None:
        async with engine(script) as (_, endpoint):
            upstream = Upstream(max_connections=20)

            async def relay(call: Call, downstream: Downstream) -> None:
                timeouts = Timeouts(connect_s=None)
                try:
                    async with upstream.request(
                        endpoint, call.method, call.target, call.headers, call.body, timeouts
                    ) as answer:
                        downstream.start(answer.status, answer.headers)
                        await answer.pump(downstream.write, downstream)
                        downstream.end()
                except UpstreamError as error:
                    respond_error(downstream, error)

            front = Front(relay, FrontLimits(linger_s=0.05))
            port = await front.listen("127.0.0.1", 0)

            async def visit(seed: int) -> None:
                async with connected(port) as client:
                    await behave(random.Random(seed), client)

            for _ in range(10):
                await asyncio.gather(*(visit(chance.randrange(1 << 30)) for _ in range(40)))
            while front.num_running or front.connections:
                await asyncio.sleep(0.01)
            assert upstream.num_connections(endpoint) <= 20
            upstream.close()
            while upstream.num_connections(endpoint):
                await asyncio.sleep(0)
            assert await front.close() == 0

    with caplog.at_level(logging.WARNING, "qanat"):
        run(test())
    assert [record.getMessage() for record in caplog.records if record.name.startswith("qanat")] == []
