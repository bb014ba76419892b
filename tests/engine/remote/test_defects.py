"""A task in the background that meets what nobody has thought of: those who depend on it are told, and why."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, cast

import pytest

from qanat.core.errors import EngineDeadError
from qanat.engine.remote.messages import CoreSaid
from qanat.engine.remote.relay import Relay
from qanat.engine.remote.remote_client import RemoteClient
from tests.engine.remote.test_joining import WAIT_S, head, line_to, report, until
from tests.worker.tiny_model import tiny_config

pytestmark = pytest.mark.asyncio


async def test_a_head_that_cannot_hear_its_hosts_any_more_gives_up_all_of_them_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with head(1, 2) as hosts, line_to(hosts) as first, line_to(hosts) as second:
        await first.join(report(1), WAIT_S)
        await second.join(report(2, process_id="two"), WAIT_S)
        broken, other = Listener(), Listener()
        life = hosts.new_life(await hosts.host_of(1, 0.0), broken)
        hosts.new_life(await hosts.host_of(2, 0.0), other)
        await first.send(CoreSaid(life))
        assert await other.reason == await broken.reason
        assert "failed (KeyError: 'a defect')" in await other.reason
        with pytest.raises(EngineDeadError, match="Replica 2 cannot be talked to, .* failed"):
            await hosts.host_of(2, None)
    assert "The line to the hosts at" in caplog.text and "Traceback" in caplog.text


async def test_who_waits_for_a_host_is_told_too() -> None:
    async with head(1, 2) as hosts, line_to(hosts) as line:
        await line.join(report(1), WAIT_S)
        life = hosts.new_life(await hosts.host_of(1, 0.0), Listener())
        waiting = asyncio.create_task(hosts.host_of(2, None))
        await asyncio.sleep(0)
        await line.send(CoreSaid(life))
        with pytest.raises(EngineDeadError, match="Replica 2 cannot be talked to"):
            await waiting


async def test_a_host_that_cannot_feed_a_core_tells_the_head(caplog: pytest.LogCaptureFixture) -> None:
    config = dataclasses.replace(tiny_config(), served_model_names=cast(Any, [object()]))
    async with head(1) as hosts, line_to(hosts) as line:
        await line.join(report(1), WAIT_S)
        relay = Relay(line, config)
        serving = asyncio.create_task(line.serve(relay.handle))
        client = RemoteClient(hosts, 1, WAIT_S)
        try:
            with pytest.raises(
                EngineDeadError, match="Replica 1: At process .*: its host's end failed .TypeError"
            ):
                await client.start(tiny_config())
            await until(lambda: "Traceback" in caplog.text)
        finally:
            await client.stop()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await relay.close()


class Listener:
    """Fails when it hears of a core; waits for the loss of its host."""

    def __init__(self) -> None:
        self.reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def hear(self, message: object, payload: bytes) -> None:
        raise KeyError("a defect")

    def lose_host(self, reason: str) -> None:
        self.reason.set_result(reason)
