"""Strangers at the head's port: what they can make it hold, keep open, write and end. Real sockets on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import math
import struct
from collections.abc import AsyncIterator

import msgspec
import pytest
import zmq.asyncio

from qanat.config.env import CLUSTER_KEY_VARIABLE
from qanat.core.errors import ConfigError, EngineDeadError
from qanat.engine.remote import quiet, sockets
from qanat.engine.remote.hosts import MAX_REFUSALS_TOLD, RemoteHosts
from qanat.engine.remote.messages import CoreSaid, ForCore, Hello, ToHost
from qanat.engine.remote.quiet import QUIET_S, Quiet
from qanat.engine.remote.sockets import MAX_FRAME_BYTES, PIECE_BYTES, in_one, in_pieces
from tests.engine.remote.test_joining import KEY, WAIT_S, head, line_to, report, until

pytestmark = pytest.mark.asyncio

SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
COMMAND_FRAME = b"\x06"
"""Flags of a frame with a command and a length of eight bytes."""


def greeting(mechanism: bytes) -> bytes:
    """With which a connection begins in ZMTP 3.1."""
    return SIGNATURE + b"\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32)


@contextlib.asynccontextmanager
async def stranger_at(hosts: RemoteHosts) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", hosts.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def until_hung_up(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(65536):
            continue


@pytest.mark.parametrize(("key", "mechanism"), [(KEY, b"CURVE"), ("", b"NULL")])
async def test_who_announces_a_frame_of_more_than_is_ever_sent_is_hung_up_on_at_once(
    key: str, mechanism: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CLUSTER_KEY_VARIABLE, key)
    monkeypatch.setattr(sockets, "HANDSHAKE_MS", int(2 * WAIT_S * 1000))  # it is not the silence that ends it
    async with head(1) as hosts:
        async with stranger_at(hosts) as (reader, writer):
            writer.write(greeting(mechanism) + COMMAND_FRAME + struct.pack(">Q", MAX_FRAME_BYTES + 1))
            await until_hung_up(reader)
        async with line_to(hosts) as line:
            await line.join(report(1), WAIT_S)


async def test_who_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "HANDSHAKE_MS", 100)
    async with head(1) as hosts, stranger_at(hosts) as (reader, _):
        await until_hung_up(reader)


@pytest.mark.parametrize("key", [KEY, ""])
async def test_payloads_of_any_size_go_both_ways(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLUSTER_KEY_VARIABLE, key)
    payload = bytes(range(251)) * (40 * PIECE_BYTES // 251)
    async with head(1) as hosts, line_to(hosts) as line:
        await line.join(report(1), WAIT_S)
        host = await hosts.host_of(1, 0.0)
        listener = Listener()
        life = hosts.new_life(host, listener)

        async def give_back(message: ToHost, received: bytes) -> None:
            assert message == ForCore(life)
            await line.send(CoreSaid(life), received)

        serving = asyncio.create_task(line.serve(give_back))
        try:
            await hosts.send(host, ForCore(life), payload)
            assert await listener.heard == payload
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("num_bytes", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
async def test_pieces_become_one_again(num_bytes: int) -> None:
    payload = b"abc" * num_bytes
    pieces = in_pieces(payload[:num_bytes])
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)
    assert in_one(pieces) == payload[:num_bytes]


async def test_what_strangers_say_stands_in_few_short_lines_of_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "QUIET_S", math.inf)
    forged = msgspec.structs.replace(report(1), host="h\nERROR forged", traits={"a\nb": "Z" * 50_000})
    async with head(1) as hosts, line_to(hosts) as line:
        for _ in range(50):
            await line.send(Hello(forged))
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as rubbish:
            rubbish.setsockopt(zmq.LINGER, 0)
            rubbish.connect(f"tcp://127.0.0.1:{hosts.port}")
            for _ in range(50):
                await rubbish.send(b"\x81" * 20_000)  # deeper than a decoder goes
            with pytest.raises(ConfigError, match=r"^[^\n]*a\\nb Z{100}\.\.\. instead of unknown"):
                await line.join(forged, WAIT_S)
            await until(lambda: "Something that is no host" in caplog.text)
        with pytest.raises(EngineDeadError) as missing:
            await hosts.host_of(1, 0.0)
    assert "forged" in caplog.text
    assert len(caplog.messages) <= 1 + MAX_REFUSALS_TOLD
    assert all("\n" not in text and len(text) < 3000 for text in [*caplog.messages, missing.value.message])


async def test_a_host_without_replicas_is_refused() -> None:
    async with head(1) as hosts, line_to(hosts) as line:
        with pytest.raises(ConfigError, match="It has no replicas"):
            await line.join(report(), WAIT_S)


async def test_lines_of_one_matter_are_so_many_within_their_time() -> None:
    times_s = iter([0.0, 1.0, 2.0, QUIET_S, QUIET_S + 0.5, QUIET_S + 1.0])
    lines = Quiet(2, lambda: next(times_s))
    told = [lines.may_tell() for _ in range(6)]
    assert told == [True, True, False, True, False, True]


class Listener:
    """Waits for what a core says."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def hear(self, message: object, payload: bytes) -> None:
        self.heard.set_result(payload)

    def lose_host(self, reason: str) -> None:
        if not self.heard.done():
            self.heard.set_exception(AssertionError(reason))
