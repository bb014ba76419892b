"""What one connection may fill the router's memory with: little ahead of a running call, and little without a key."""

from __future__ import annotations

import asyncio

from qanat.core.errors import AuthenticationError
from qanat.router.http.exchange import Downstream, respond
from qanat.router.http.front import Front
from qanat.router.http.limits import FrontLimits
from qanat.router.model import Call
from tests.router.http.wire import Client, connected, run, serving

_PIECE = 256 << 10
"""Most that the event loop reads at once."""


def held(front: Front) -> int:
    (connection,) = front.connections
    return connection._reader.num_body_bytes + sum(len(each.body) for each in connection._queue)


async def paused(front: Front) -> None:
    (connection,) = front.connections
    while connection._is_reading:
        await asyncio.sleep(0)


def test_bodies_behind_a_running_call_are_left_in_the_socket() -> None:
    async def look() -> None:
        gate = asyncio.Event()

        async def handler(call: Call, downstream: Downstream) -> None:
            await gate.wait()
            respond(downstream, 200, b"%d" % len(call.body))

        limits = FrontLimits()
        for sizes in ([_PIECE] * 12, [12 * _PIECE]):
            gate.clear()
            async with serving(handler, limits) as (front, port), connected(port) as client:
                client.ask("POST", "/", b"x")
                for size in sizes:
                    client.ask("POST", "/", b"x" * size)
                await paused(front)
                assert held(front) <= limits.max_ahead_bytes + _PIECE < sum(sizes)
                gate.set()
                answers = [(await client.answer()).body for _ in (1, *sizes)]
                assert answers == [b"1", *(b"%d" % size for size in sizes)]

    run(look())


class Checked:
    """A server that wants a key."""

    def __init__(self) -> None:
        self.num_checked = 0
        self.num_called = 0

    def check(self, call: Call) -> None:
        self.num_checked += 1
        assert (call.method, call.path, call.body) == ("POST", "/a", b"")
        if call.header(b"authorization") != b"Bearer good":
            raise AuthenticationError("the API key is wrong")

    async def __call__(self, call: Call, downstream: Downstream) -> None:
        self.num_called += 1
        respond(downstream, 200, b"%d" % len(call.body))


def head(framing: str, key: str = "bad") -> bytes:
    return f"POST /a?b HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\n{framing}\r\n\r\n".encode()


LIMITS = FrontLimits(max_unchecked_bytes=1000)


def test_a_long_body_needs_its_key_before_it_is_read() -> None:
    async def refused(client: Client) -> None:
        answer = await client.answer()
        assert answer.status == 401 and b"the API key is wrong" in answer.body
        assert answer.headers["connection"] == "close"

    async def look() -> None:
        for framing in ("Content-Length: 1001", "Content-Length: 1001\r\nExpect: 100-continue"):
            checked = Checked()
            async with serving(checked, LIMITS, checked.check) as (_, port), connected(port) as client:
                client.send(head(framing))
                await refused(client)
                assert checked.num_called == 0
        checked = Checked()
        async with serving(checked, LIMITS, checked.check) as (_, port), connected(port) as client:
            client.send(head("Transfer-Encoding: chunked") + b"3e8\r\n" + b"x" * 1000 + b"\r\n")
            client.send(b"1\r\nx\r\n")
            await refused(client)
            assert checked.num_called == 0

    run(look())


def test_with_a_key_it_is_read_and_checked_once() -> None:
    async def look() -> None:
        checked = Checked()
        async with serving(checked, LIMITS, checked.check) as (_, port), connected(port) as client:
            client.send(head("Content-Length: 3000", "good") + b"x" * 3000)
            assert (await client.answer()).body == b"3000"
            client.send(head("Transfer-Encoding: chunked", "good"))
            for _ in range(3):
                client.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
            client.send(b"0\r\n\r\n")
            assert (await client.answer()).body == b"3000"
            client.send(
                head("Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3000", "good") + b"x" * 3000
            )
            assert (await client.answer()).body == b"3000"
            assert checked.num_checked == 3

    run(look())


def test_a_short_body_is_left_to_the_handler() -> None:
    async def look() -> None:
        checked = Checked()
        async with serving(checked, LIMITS, checked.check) as (_, port), connected(port) as client:
            client.send(head("Content-Length: 1000") + b"x" * 1000)
            assert (await client.answer()).status == 200
            assert checked.num_checked == 0

    run(look())
