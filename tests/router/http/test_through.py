"""Front and upstream together, as the relay uses them: what one side does reaches the other."""

from __future__ import annotations

import asyncio

import pytest

from qanat.router.http.errors import UpstreamError
from qanat.router.http.exchange import Downstream, Handler, respond_error
from qanat.router.http.upstream import Upstream
from qanat.router.model import Call, Endpoint
from tests.router.http.wire import EngineSide, connected, engine, run, serving

pytestmark = pytest.mark.usefixtures("each_loop")

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

# More than the system's own buffers on both ways can hold.
PIECE_BYTES, MOST_PIECES = 1_000_000, 300


def relaying(upstream: Upstream, endpoint: Endpoint) -> Handler:
    async def relay(call: Call, downstream: Downstream) -> None:
        try:
            request = upstream.request(endpoint, call.method, call.target, call.headers, call.body)
            async with request as answer:
                downstream.start(answer.status, answer.headers)
                await answer.pump(downstream.write, downstream)
                downstream.end()
        except UpstreamError as error:
            if downstream.is_started:
                downstream.abort()
            else:
                respond_error(downstream, error)

    return relay


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize("size", [1, 1000, 100_000])
def test_a_stream_arrives_byte_for_byte_and_each_piece_at_once(size: int) -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def script(side: EngineSide) -> None:
            while True:
                await side.request()
                side.send(HEAD)
                for number in range(10):
                    side.send(chunk(bytes([number]) * size))
                    await go_on.wait()
                    go_on.clear()
                side.send(b"0\r\n\r\n")

        async with engine(script) as (scripted, endpoint):
            upstream = Upstream()
            async with serving(relaying(upstream, endpoint)) as (_, port), connected(port) as client:
                for _ in range(2):
                    client.ask()
                    assert (await client.answer(has_body=False)).status == 200
                    for number in range(10):
                        received = b""
                        while len(received) < size:
                            length = int(await client.reader.readuntil(b"\r\n"), 16)
                            received += (await client.reader.readexactly(length + 2))[:-2]
                        assert received == bytes([number]) * size
                        go_on.set()
                    assert await client.reader.readexactly(5) == b"0\r\n\r\n"
            upstream.close()
            assert scripted.num_connections == 1

    run(test())


def test_the_head_of_an_answer_does_not_wait_for_its_body() -> None:
    async def test() -> None:
        async def script(side: EngineSide) -> None:
            await side.request()
            side.send(HEAD)
            await side.client_left()

        async with engine(script) as (_, endpoint):
            async with serving(relaying(Upstream(), endpoint)) as (_, port), connected(port) as client:
                client.ask()
                answer = await client.answer(has_body=False)
                assert answer.headers == {"content-type": "text/event-stream", "transfer-encoding": "chunked"}

    run(test())


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_client_that_leaves_is_seen_by_the_engine(has_begun: bool) -> None:
    async def test() -> None:
        is_asked, has_left = asyncio.Event(), asyncio.Event()

        async def script(side: EngineSide) -> None:
            await side.request()
            if has_begun:
                side.send(HEAD + chunk(b"a"))
            is_asked.set()
            await side.client_left()
            has_left.set()

        async with engine(script) as (_, endpoint):
            async with serving(relaying(Upstream(), endpoint)) as (_, port), connected(port) as client:
                client.ask()
                await is_asked.wait()
                if has_begun:
                    await client.reader.readuntil(b"a\r\n")
                client.writer.transport.abort()
                await has_left.wait()

    run(test())


def test_an_engine_is_left_unread_while_the_client_is_slow() -> None:
    async def test() -> None:
        num_sent = 0
        is_stuck = asyncio.Event()

        async def script(side: EngineSide) -> None:
            nonlocal num_sent
            await side.request()
            side.send(HEAD)
            while not is_stuck.is_set() and num_sent < MOST_PIECES:
                side.send(chunk(bytes(PIECE_BYTES)))
                num_sent += 1
                try:
                    await asyncio.wait_for(side.writer.drain(), 0.3)
                except TimeoutError:
                    is_stuck.set()
            side.send(b"0\r\n\r\n")
            await side.client_left()

        async with engine(script) as (_, endpoint):
            async with (
                serving(relaying(Upstream(), endpoint)) as (_, port),
                connected(port, limit=1000) as client,
            ):
                client.ask()
                while not is_stuck.is_set() and num_sent < MOST_PIECES:
                    await asyncio.sleep(0.01)
                assert is_stuck.is_set()
                assert len((await client.answer()).body) == num_sent * PIECE_BYTES

    run(test())


def test_an_error_of_the_engine_is_the_clients_error() -> None:
    async def test() -> None:
        async def script(side: EngineSide) -> None:
            await side.request()
            side.send(b"HTTP/1.1 429 Slow down\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{}")
            await side.client_left()

        async with engine(script) as (_, endpoint):
            upstream = Upstream()
            async with serving(relaying(upstream, endpoint)) as (_, port), connected(port) as client:
                client.ask("POST", "/v1/completions", b"{}")
                answer = await client.answer()
                assert (answer.status, answer.headers["retry-after"], answer.body) == (429, "7", b"{}")
            upstream.close()
        async with serving(relaying(Upstream(), endpoint)) as (_, port), connected(port) as client:
            client.ask()
            answer = await client.answer()
            assert answer.status == 503
            assert b"upstream_unreachable" in answer.body

    run(test())


def test_a_stream_that_the_engine_breaks_off_is_broken_off_for_the_client() -> None:
    async def test() -> None:
        async def script(side: EngineSide) -> None:
            await side.request()
            side.send(HEAD + chunk(b"half"))

        async with engine(script) as (_, endpoint):
            async with serving(relaying(Upstream(), endpoint)) as (_, port), connected(port) as client:
                client.ask()
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await client.answer()

    run(test())
