"""Hosts join a head: who may, who may not, and what both sides are told. Real sockets on the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
import zmq.asyncio

from qanat.config.env import CLUSTER_KEY_VARIABLE
from qanat.core.errors import ConfigError, EngineDeadError
from qanat.engine.remote import hosts as hosts_module
from qanat.engine.remote.head_line import HeadLine, HeadLostError
from qanat.engine.remote.hosts import RemoteHosts
from qanat.engine.remote.identity import HostReport, report_of
from tests.support.server_process import free_port

pytestmark = pytest.mark.asyncio

WAIT_S = 60.0
TRAITS = {"qanat": "1", "--dtype": "bfloat16"}
KEY = "correct horse battery staple"


def report(*replicas: int, process_id: str = "one", **traits: str) -> HostReport:
    own = report_of(replicas, "127.0.0.1", "lo", {**TRAITS, **traits})
    return msgspec.structs.replace(own, process_id=process_id)


@contextlib.asynccontextmanager
async def head(*replicas: int, is_return_wished: bool = True) -> AsyncIterator[RemoteHosts]:
    hosts = RemoteHosts("127.0.0.1", 0, replicas, TRAITS, is_return_wished=is_return_wished)
    try:
        async with asyncio.timeout(WAIT_S):
            yield hosts
    finally:
        await hosts.close()


@contextlib.asynccontextmanager
async def line_to(hosts: RemoteHosts) -> AsyncIterator[HeadLine]:
    line = HeadLine("127.0.0.1", hosts.port)
    try:
        yield line
    finally:
        await line.close()


async def ignore(*_: object) -> None:
    return None


async def test_a_host_that_fits_is_taken_in_and_both_know_each_other() -> None:
    async with head(1, 2) as hosts, line_to(hosts) as line:
        theirs = await line.join(report(1, 2), WAIT_S)
        assert theirs.address == "127.0.0.1" and theirs.interface == "lo" and theirs.pid
        assert (await hosts.host_of(2, 0.0)).report == report(1, 2)


async def test_a_host_may_be_there_before_the_head() -> None:
    was_tried = asyncio.Event()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        was_tried.set()

    port = free_port()
    nobody = await asyncio.start_server(hang_up, "127.0.0.1", port)
    line = HeadLine("127.0.0.1", port)
    try:
        joining = asyncio.create_task(line.join(report(1), WAIT_S))
        async with nobody:
            await asyncio.wait_for(was_tried.wait(), WAIT_S)
        assert not joining.done()
        later = RemoteHosts("127.0.0.1", port, [1], TRAITS)
        try:
            await asyncio.wait_for(joining, WAIT_S)
        finally:
            await later.close()
    finally:
        await line.close()


async def test_what_differs_is_named_on_both_sides() -> None:
    async with head(1) as hosts, line_to(hosts) as line:
        with pytest.raises(
            ConfigError, match="it has --dtype float32 instead of bfloat16, torch 3 instead of unknown"
        ):
            await line.join(report(1, **{"--dtype": "float32", "torch": "3"}), WAIT_S)
        with pytest.raises(
            EngineDeadError, match="Replica 1 did not join .* Refused: process .* --dtype float32"
        ):
            await hosts.host_of(1, 0.0)


async def test_a_replica_that_is_there_is_not_taken_twice() -> None:
    async with head(1, 2) as hosts, line_to(hosts) as first, line_to(hosts) as second:
        await first.join(report(1), WAIT_S)
        with pytest.raises(
            ConfigError, match=r"Replica 1 is there already: process \d+ on .* \(127.0.0.1, lo\)"
        ):
            await second.join(report(1, 2, process_id="two"), WAIT_S)
        with pytest.raises(EngineDeadError, match="Replica 2 did not join"):
            await hosts.host_of(2, 0.0)


async def test_replicas_that_are_not_expected_are_refused() -> None:
    async with head(2, 3) as hosts, line_to(hosts) as line:
        with pytest.raises(
            ConfigError, match="expects replicas 2 and 3 from other hosts, and not replicas 0 and 1"
        ):
            await line.join(report(0, 1, 2), WAIT_S)


async def test_a_process_that_connects_anew_takes_the_place_of_its_former_self() -> None:
    async with head(1) as hosts, line_to(hosts) as first, line_to(hosts) as second:
        await first.join(report(1), WAIT_S)
        former = await hosts.host_of(1, 0.0)
        await second.join(report(1), WAIT_S)
        assert await hosts.host_of(1, 0.0) is not former
        with pytest.raises(
            HeadLostError
        ) as caught:  # what it says on the former connection is not heard any more
            await first.serve(ignore)
        assert caught.value.may_return


async def test_all_that_are_missing_are_named() -> None:
    async with head(1, 2, 3) as hosts, line_to(hosts) as line:
        await line.join(report(2), WAIT_S)
        with pytest.raises(
            EngineDeadError, match="Replicas 1 and 3 did not join at 127.0.0.1:.* within 0 s.*--headless"
        ):
            await hosts.host_of(1, 0.0)


async def test_no_head_is_told_with_the_address() -> None:
    async with head(1) as hosts:
        port = hosts.port
    line = HeadLine("127.0.0.1", port)
    try:
        with pytest.raises(EngineDeadError, match=f"No head answered at 127.0.0.1:{port} within 0 s"):
            await line.join(report(1), 0.3)
    finally:
        await line.close()


@pytest.mark.parametrize(
    ("key_of_host", "words"),
    [(KEY + "!", "the keys differ"), ("", "one of the two has a key and the other has none")],
)
async def test_a_wrong_key_is_told_on_both_sides_and_never_shown(
    key_of_host: str, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(CLUSTER_KEY_VARIABLE, KEY)
    async with head(1) as hosts:
        monkeypatch.setenv(CLUSTER_KEY_VARIABLE, key_of_host)
        async with line_to(hosts) as line:
            with pytest.raises(ConfigError, match=f"{words} .*QANAT_CLUSTER_KEY") as caught:
                await line.join(report(1), WAIT_S)
        await until(lambda: "something that tried to join could not" in caplog.text)
        with pytest.raises(
            EngineDeadError, match="Refused: something that tried to join .*QANAT_CLUSTER_KEY"
        ):
            await hosts.host_of(1, 0.0)
    assert KEY not in caplog.text + caught.value.message


async def test_the_same_key_is_enough_and_what_is_said_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLUSTER_KEY_VARIABLE, KEY)
    carried = bytearray()
    async with head(1) as hosts, recording_proxy(hosts.port, carried) as port:
        line = HeadLine("127.0.0.1", port)
        try:
            await line.join(report(1), WAIT_S)
        finally:
            await line.close()
    assert len(carried) > 500 and b"bfloat16" not in carried


async def test_without_a_key_the_proxy_reads_all() -> None:
    carried = bytearray()
    async with head(1) as hosts, recording_proxy(hosts.port, carried) as port:
        line = HeadLine("127.0.0.1", port)
        try:
            await line.join(report(1), WAIT_S)
        finally:
            await line.close()
    assert b"bfloat16" in carried


async def test_rubbish_is_ignored_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async with head(1) as hosts, line_to(hosts) as line:
        context = zmq.asyncio.Context()
        try:
            with context.socket(zmq.DEALER) as socket:
                socket.connect(f"tcp://127.0.0.1:{hosts.port}")
                for frames in (
                    [b"rubbish"],
                    [b""],
                    [b"\x81\xa4type\xa4Beat"],
                    [msgspec.msgpack.encode([1, 2])],
                ):
                    await socket.send_multipart(frames)
                await until(lambda: "no host of this service" in caplog.text)
        finally:
            context.destroy(linger=0)
        await line.join(report(1), WAIT_S)


async def test_a_silent_host_is_given_up_and_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with head(1) as hosts, line_to(hosts) as line:
        await line.join(report(1), WAIT_S)
        listener = Listener()
        hosts.new_life(await hosts.host_of(1, 0.0), listener)
        monkeypatch.setattr(hosts_module, "SILENCE_S", 0.5)
        assert await listener.reason == "has said nothing for 0 s"
        with pytest.raises(HeadLostError) as caught:
            await line.serve(ignore)
        assert caught.value.may_return and "silent for too long" in caught.value.reason
        async with line_to(hosts) as second:
            await second.join(report(1), WAIT_S)


async def test_a_host_that_hangs_up_is_noticed() -> None:
    async with head(1) as hosts:
        async with line_to(hosts) as line:
            await line.join(report(1), WAIT_S)
            listener = Listener()
            hosts.new_life(await hosts.host_of(1, 0.0), listener)
        assert await listener.reason == "has hung up"


async def test_a_host_that_takes_its_leave_is_noticed_and_stays_away_if_that_is_wished() -> None:
    async with head(1, is_return_wished=False) as hosts, line_to(hosts) as line, line_to(hosts) as again:
        await line.join(report(1), WAIT_S)
        listener = Listener()
        hosts.new_life(await hosts.host_of(1, 0.0), listener)
        await line.say_farewell("was told to stop")
        assert await listener.reason == "was told to stop"
        with pytest.raises(ConfigError, match="its host was told to stop. .*--restart-engine"):
            await again.join(report(1, process_id="two"), WAIT_S)


async def test_the_end_of_the_head_is_told() -> None:
    async with head(1) as hosts, line_to(hosts) as line:
        await line.join(report(1), WAIT_S)
        serving = asyncio.create_task(line.serve(ignore))
        await hosts.close("The server stops.")
        with pytest.raises(HeadLostError, match="has ended: The server stops.") as caught:
            await serving
        assert not caught.value.may_return


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "192.0.2.1",
            r"--data-parallel-address 192.0.2.1 is not an address of this host.* It has: .*127.0.0.1 \(lo\)",
        ),
        ("no such name", "--data-parallel-address no such name is not an address of this host"),
    ],
)
async def test_an_address_of_another_host_is_refused(address: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RemoteHosts(address, 0, [1], TRAITS)


async def test_a_port_that_is_taken_is_refused() -> None:
    async with head(1) as hosts:
        with pytest.raises(
            ConfigError, match=f"Port {hosts.port} of 127.0.0.1 is taken.*--data-parallel-rpc-port"
        ):
            RemoteHosts("127.0.0.1", hosts.port, [1], TRAITS)


class Listener:
    """Waits for the loss of a host."""

    def __init__(self) -> None:
        self.reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def hear(self, message: object, payload: bytes) -> None:
        raise AssertionError(f"no core was started, and yet: {message} {payload!r}")

    def lose_host(self, reason: str) -> None:
        self.reason.set_result(reason)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def recording_proxy(port: int, carried: bytearray) -> AsyncIterator[int]:
    """A port that leads to the other one; what goes over it is kept."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                carried.extend(data)
                writer.write(data)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
