"""The client against servers of its own: kept connections, connections that were just closed, deadlines, TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from qanat.bench.client.client import Client, Reply
from qanat.bench.client.load import Load, Planned
from qanat.bench.client.recording import Store
from qanat.bench.client.stream_loop import new_event_loop
from qanat.bench.online.answer import read_answer
from qanat.deploy.verify.address import read_address
from tests.router.http.certificate import contexts, needs_openssl

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
EVENTS_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"9\r\ndata: a\n\n\r\n"
LOOPS = {"streams": new_event_loop, "usual": asyncio.new_event_loop}
ON_EACH_LOOP = pytest.mark.parametrize("loop", LOOPS)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def asked(serve: Serve, test: Callable[[Client], Awaitable[None]], *, timeout_s: float = 10.0,
          tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None, loop: str = "streams") -> Client:  # fmt: skip
    """Runs a test with a client of a server; returns the client."""

    async def main() -> Client:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls[0] if tls else None)
        port = server.sockets[0].getsockname()[1]
        address = read_address(f"http{'s' if tls else ''}://localhost:{port}")
        client = Client(address, tls[1] if tls else None, Store(), timeout_s)
        await test(client)
        client.close()
        server.close()
        return client

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(main())


async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(OK)
    await writer.drain()
    await reader.readuntil(b"\r\n\r\n")  # a kept connection that ends as the next request arrives
    writer.close()


@ON_EACH_LOOP
def test_a_connection_is_kept_for_the_next_request(loop: str) -> None:
    async def test(client: Client) -> None:
        for _ in range(3):
            assert await client.ask(GET) == Reply(200, b"hi")

    assert asked(answer_all, test, loop=loop).num_opened == 1


@ON_EACH_LOOP
def test_a_kept_connection_that_has_just_been_closed_is_no_failure(loop: str) -> None:
    async def test(client: Client) -> None:
        for _ in range(3):
            assert (await client.ask(GET)).is_ok

    assert asked(answer_once, test, loop=loop).num_opened == 3


@ON_EACH_LOOP
def test_a_request_has_a_deadline(loop: str) -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def test(client: Client) -> None:
        reply = await client.ask(GET)
        assert (reply.failure, reply.message) == ("timeout", "no complete answer within 0.05 s")

    asked(never, test, timeout_s=0.05, loop=loop)


@needs_openssl
def test_https_is_checked(tmp_path: Path) -> None:
    has_it, trusts_it = contexts(tmp_path)

    async def test(client: Client) -> None:
        assert (await client.ask(GET)).is_ok

    asked(answer_all, test, tls=(has_it, trusts_it))

    async def test_refused(client: Client) -> None:
        assert (await client.ask(GET)).failure == "tls"

    asked(answer_all, test_refused, tls=(has_it, ssl.create_default_context()))


def test_no_more_run_at_once_than_is_allowed_and_all_are_sent() -> None:
    async def test(client: Client) -> None:
        load = Load(client, max_concurrency=3)
        record = await load.run([Planned(number, 0.0, GET) for number in range(40)])
        runs = [(one.sent_ns, one.end_ns) for one in record.recordings]
        assert max(sum(begin <= at < end for begin, end in runs) for at, _ in runs) <= 3
        assert sorted(one.index for one in record.recordings) == list(range(40))
        assert all(one.end_ns >= one.sent_ns >= one.ready_ns >= one.intended_ns for one in record.recordings)

    assert asked(answer_all, test).num_opened <= 3


def test_a_cancelled_run_keeps_what_there_is() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.read()
        writer.close()

    async def test(client: Client) -> None:
        load = Load(client, max_concurrency=1)
        running = asyncio.create_task(load.run([Planned(number, 0.0, GET) for number in range(5)]))
        while not load.num_done:
            await asyncio.sleep(0.001)
        running.cancel()
        record = await running
        assert record.is_stopped
        assert [one.failure for one in record.recordings][:2] in (["", "cancelled"], ["", ""])

    asked(slow, test)


@ON_EACH_LOOP
def test_each_piece_has_its_time_and_the_end_of_a_stream_frees_the_connection(loop: str) -> None:
    moments: list[int] = []

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            for piece in (EVENTS_HEAD, EVENT, EVENT, b"0\r\n\r\n"):
                moments.append(time.monotonic_ns())
                writer.write(piece)
                await asyncio.sleep(0.01)
        await reader.read()
        writer.close()

    async def test(client: Client) -> None:
        record = await Load(client, max_concurrency=1).run([Planned(number, 0.0, GET) for number in range(2)])
        times = [time_ns for one in record.recordings for time_ns in one.times_ns]
        assert [one.failure for one in record.recordings] == ["", ""]
        assert len(times) == len(moments)
        written_ns = [*moments[1:], time.monotonic_ns()]
        # Each came before the server, in the same loop, was awake for the next one.
        assert all(
            at <= time_ns <= until for at, time_ns, until in zip(moments, times, written_ns, strict=True)
        )

    assert asked(stream, test, loop=loop).num_opened == 1


@ON_EACH_LOOP
@pytest.mark.parametrize("is_reset", [False, True])
def test_a_connection_that_ends_early_is_cut(is_reset: bool, loop: str) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(EVENTS_HEAD + EVENT)
        await writer.drain()
        if is_reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

    async def test(client: Client) -> None:
        reply = await client.ask(GET)
        assert reply.failure == "cut"

    asked(cut, test, loop=loop)


@ON_EACH_LOOP
def test_what_only_looks_like_the_end_of_a_stream_is_told(loop: str) -> None:
    """Nobody sends an event with a line that is a mere 0: the run takes it for the end, the reading does not."""

    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(EVENTS_HEAD)
        await asyncio.sleep(0.01)
        writer.write(b"20\r\ndata: a\r\n0\r\n\r\n")
        await reader.read()
        writer.close()

    async def test(client: Client) -> None:
        record = await Load(client).run([Planned(0, 0.0, GET)])
        recording = record.recordings[0]
        pieces = zip(recording.times_ns, recording.pieces, strict=True)
        assert read_answer(recording, pieces, record.start_ns).failure == "no_json"

    asked(odd, test, loop=loop)
