"""Slow, silent and vanishing clients, and the end of the server."""

from __future__ import annotations

import asyncio
import socket

import pytest

from qanat.core.errors import ConfigError
from qanat.router.http.exchange import Downstream, respond
from qanat.router.http.front import Front
from qanat.router.http.limits import FrontLimits
from qanat.router.model import Call
from tests.router.http.wire import Client, connected, run, serving

pytestmark = pytest.mark.usefixtures("each_loop")


async def hello(call: Call, downstream: Downstream) -> None:
    respond(downstream, 200, b"hello")


class Endless:
    """A handler whose answer begins and never ends by itself."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.is_cancelled = asyncio.Event()
        self.saw_gone = False

    async def __call__(self, call: Call, downstream: Downstream) -> None:
        downstream.start(200, [])
        downstream.write(b"begin")
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.saw_gone = downstream.is_gone
            downstream.write(b"nobody reads this")
            self.is_cancelled.set()
            raise


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_client_that_goes_away_cancels_its_handler(is_reset: bool) -> None:
    async def test() -> None:
        handler = Endless()
        async with serving(handler) as (front, port), connected(port) as client:
            client.ask()
            await handler.has_begun.wait()
            if is_reset:
                client.writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
                )
                client.writer.transport.abort()
            else:
                client.writer.write_eof()
            await handler.is_cancelled.wait()
            assert handler.saw_gone
            while front.num_running or front.connections:
                await asyncio.sleep(0)

    run(test())


def test_requests_behind_the_one_that_was_given_up_are_never_started() -> None:
    async def test() -> None:
        targets: list[str] = []
        endless = Endless()

        async def handler(call: Call, downstream: Downstream) -> None:
            targets.append(call.target)
            await endless(call, downstream)

        async with serving(handler) as (front, port), connected(port) as client:
            client.ask("GET", "/runs")
            client.ask("GET", "/waits")
            await endless.has_begun.wait()
            client.writer.transport.abort()
            while front.connections:
                await asyncio.sleep(0)
            assert targets == ["/runs"]

    run(test())


def test_a_writer_waits_for_a_slow_client_and_goes_on_when_it_reads() -> None:
    async def test() -> None:
        num_written = 0
        is_stuck = asyncio.Event()

        async def handler(call: Call, downstream: Downstream) -> None:
            nonlocal num_written
            downstream.start(200, [])
            while not is_stuck.is_set() and num_written < 300:  # far more than the system's own buffers hold
                downstream.write(bytes(1_000_000))
                num_written += 1
                try:
                    await asyncio.wait_for(downstream.drain(), 0.3)
                except TimeoutError:
                    is_stuck.set()
            await downstream.drain()
            downstream.end()

        async with serving(handler) as (_, port), connected(port, limit=1000) as client:
            client.ask()
            while not is_stuck.is_set() and num_written < 300:
                await asyncio.sleep(0.01)
            assert is_stuck.is_set()
            assert len((await client.answer()).body) == num_written * 1_000_000

    run(test())


def test_a_client_that_reads_nothing_at_all_is_cut_off() -> None:
    async def test() -> None:
        is_cancelled = asyncio.Event()

        async def handler(call: Call, downstream: Downstream) -> None:
            downstream.start(200, [])
            try:
                while True:
                    downstream.write(bytes(1 << 20))
                    await downstream.drain()
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                is_cancelled.set()
                raise

        async with (
            serving(handler, FrontLimits(stall_timeout_s=0.1)) as (_, port),
            connected(port, limit=1) as client,
        ):
            client.ask()
            await is_cancelled.wait()

    run(test())


def test_a_connection_without_requests_is_closed_after_a_while() -> None:
    async def test() -> None:
        async with serving(hello, FrontLimits(idle_timeout_s=0.1)) as (_, port), connected(port) as client:
            assert await client.is_closed()

    run(test())


def test_a_connection_is_kept_for_a_while_after_an_answer() -> None:
    async def test() -> None:
        async with serving(hello, FrontLimits(idle_timeout_s=2.0)) as (_, port), connected(port) as client:
            client.ask()
            assert (await client.answer()).body == b"hello"
            assert await client.is_closed()

    run(test())


@pytest.mark.parametrize(
    ("limits", "begin", "word"),
    [
        (FrontLimits(head_timeout_s=0.1), b"GET / HTT", b"head"),
        (
            FrontLimits(body_timeout_s=0.1),
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabc",
            b"body",
        ),
    ],
)
def test_a_request_that_does_not_come_to_its_end_is_refused(
    limits: FrontLimits, begin: bytes, word: bytes
) -> None:
    async def test() -> None:
        async with serving(hello, limits) as (_, port), connected(port) as client:
            client.send(begin)
            answer = await client.answer()
            assert answer.status == 408
            assert word in answer.body
            assert await client.is_closed()

    run(test())


def test_bytes_that_trickle_in_do_not_prolong_the_time_for_a_head() -> None:
    async def test() -> None:
        async def trickle(client: Client) -> None:
            client.send(b"GET / HTTP/1.1\r\nHost: h\r\n")
            while True:
                client.send(b"X: y\r\n")
                await asyncio.sleep(0.01)

        limits = FrontLimits(head_timeout_s=0.2, max_head_bytes=1 << 30)
        async with serving(hello, limits) as (_, port), connected(port) as client:
            trickling = asyncio.create_task(trickle(client))
            assert (await client.answer()).status == 408
            trickling.cancel()

    run(test())


def test_a_late_request_behind_a_running_one_leaves_that_one_alone() -> None:
    async def test() -> None:
        gate = asyncio.Event()

        async def handler(call: Call, downstream: Downstream) -> None:
            await gate.wait()
            await hello(call, downstream)

        async with serving(handler, FrontLimits(head_timeout_s=0.05, linger_s=0.05)) as (_, port):
            async with connected(port) as client, connected(port) as other:
                client.ask()
                client.send(b"GET / HT")
                other.send(b"GET / HT")
                assert (
                    await other.answer()
                ).status == 408  # so the first one's time is over as well, or soon
                assert await other.is_closed()
                gate.set()
                assert (await client.answer()).body == b"hello"
                assert (await client.answer()).status == 408
                assert await client.is_closed()

    run(test())


def test_a_refusal_behind_a_running_request_ends_the_wait_for_the_refused_one() -> None:
    async def test() -> None:
        gate = asyncio.Event()

        async def handler(call: Call, downstream: Downstream) -> None:
            await gate.wait()
            await hello(call, downstream)

        async with serving(handler, FrontLimits(head_timeout_s=2.0)) as (front, port):
            async with connected(port) as client, connected(port) as other:
                client.ask()
                client.send(b"GET / HT")
                while not any(connection._reader.is_in_head for connection in front.connections):
                    await asyncio.sleep(0)
                client.send(b"nonsense\r\n\r\n")
                while not any(connection._is_refused for connection in front.connections):
                    await asyncio.sleep(0)
                other.send(b"GET / HT")
                assert (
                    await other.answer()
                ).status == 408  # begun later, so the first one's time is over as well
                gate.set()
                assert (await client.answer()).body == b"hello"
                assert (await client.answer()).status == 400

    run(test())


def test_draining_finishes_what_runs_and_takes_no_more() -> None:
    async def test() -> None:
        gate = asyncio.Event()

        async def handler(call: Call, downstream: Downstream) -> None:
            await gate.wait()
            await hello(call, downstream)

        front = Front(handler)
        port = await front.listen("127.0.0.1", 0)
        async with connected(port) as busy, connected(port) as unused:
            busy.ask()
            while front.num_running == 0 or len(front.connections) < 2:
                await asyncio.sleep(0)
            closing = asyncio.create_task(front.close())
            assert await unused.is_closed()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            gate.set()
            answer = await busy.answer()
            assert (answer.body, answer.headers["connection"]) == (b"hello", "close")
            assert await busy.is_closed()
            assert await closing == 0

    run(test())


def test_a_request_that_is_on_its_way_when_draining_begins_is_answered() -> None:
    async def test() -> None:
        front = Front(hello)
        port = await front.listen("127.0.0.1", 0)
        async with connected(port) as client, connected(port) as unused:
            client.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n")
            while not any(connection._reader.is_in_body for connection in front.connections):
                await asyncio.sleep(0)
            closing = asyncio.create_task(front.close())
            assert await unused.is_closed()
            client.send(b"ab")
            assert (await client.answer()).headers["connection"] == "close"
            assert await closing == 0

    run(test())


def test_what_runs_longer_than_draining_may_take_is_cut_and_counted() -> None:
    async def test() -> None:
        handler = Endless()
        front = Front(handler)
        port = await front.listen("127.0.0.1", 0)
        async with connected(port) as client:
            client.ask()
            await handler.has_begun.wait()
            assert await front.close(limit_s=0.01) == 1
            assert handler.is_cancelled.is_set()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.answer()

    run(test())


def test_an_address_in_use_is_an_error_that_names_the_flag() -> None:
    async def test() -> None:
        async with serving(hello) as (_, port):
            with pytest.raises(ConfigError, match=f"{port}.*--port"):
                await Front(hello).listen("127.0.0.1", port)

    run(test())


def test_one_client_too_many_is_told_so_and_the_next_is_served_when_another_left() -> None:
    async def test() -> None:
        async with serving(hello, FrontLimits(max_connections=1)) as (front, port):
            async with connected(port) as first:
                first.ask()
                assert (await first.answer()).body == b"hello"
                async with connected(port) as second:
                    answer = await second.answer()
                    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
                    assert await second.is_closed()
            while front.connections:
                await asyncio.sleep(0)
            async with connected(port) as third:
                third.ask()
                assert (await third.answer()).body == b"hello"

    run(test())


def test_a_head_does_not_wait_for_a_body() -> None:
    async def test() -> None:
        gate = asyncio.Event()

        async def handler(call: Call, downstream: Downstream) -> None:
            downstream.start(202, [])
            await gate.wait()
            downstream.end()

        async with serving(handler) as (_, port), connected(port) as client:
            client.ask()
            assert (await client.answer(has_body=False)).status == 202
            gate.set()
            assert await client.reader.readexactly(5) == b"0\r\n\r\n"

    run(test())


def test_a_listener_that_comes_while_the_client_is_slow_hears_of_it() -> None:
    async def test() -> None:
        heard: list[bool] = []
        has_heard = asyncio.Event()

        def listen(is_paused: bool) -> None:
            heard.append(is_paused)
            has_heard.set()

        async def handler(call: Call, downstream: Downstream) -> None:
            downstream.start(200, [])
            downstream.write(bytes(30_000_000))
            await asyncio.sleep(0)
            downstream.set_listener(listen)
            await downstream.drain()
            downstream.end()

        async with serving(handler) as (_, port), connected(port, limit=1000) as client:
            client.ask()
            await has_heard.wait()
            assert len((await client.answer()).body) == 30_000_000
            assert heard == [True, False]

    run(test())
