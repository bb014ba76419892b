"""An engine that can be hurt: a server with the demo model, and a wire to it that can become slow or silent.

Or, on a host of its own, a network that loses or holds back what it carries.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
from collections.abc import Sequence

import httpx

from tests.netns import Host
from tests.support.server_process import COMMAND, ServerProcess
from tests.support.wire import Wire

_SLOW_S = 0.05
_DELAY_MS, _LOSS_PERCENT = 200.0, 20.0
_FLAP_S = 0.3
_NUM_RESETS = 3


class HostServer(ServerProcess):
    """A server on a host of its own, reached by that host's address.

    Args:
        arguments: after `serve`.
        host: where it runs.
        port: where it listens; None for a free one.
    """

    def __init__(self, arguments: Sequence[str], host: Host, port: int | None) -> None:
        command = host.command([*COMMAND, "serve"])
        super().__init__([*arguments, "--host", host.address], command=command)
        self._address = host.address
        if port is not None:
            self._arguments[self._arguments.index("--port") + 1] = str(port)
            self.port = port

    @property
    def base_url(self) -> str:
        """Root of the server, without a slash at the end."""
        return f"http://{self._address}:{self.port}"


class ChaosEngine:
    """One engine behind a wire, or on a host of its own and then without one.

    Args:
        arguments: of `qanat serve`.
        host: where it runs; None for this host.
        wire: what leads to it on this host; None for one without faults of its own.
    """

    def __init__(self, arguments: Sequence[str], host: Host | None = None, wire: Wire | None = None) -> None:
        self.wire = wire or Wire()
        self._arguments = arguments
        self._host = host
        self._port: int | None = None
        self._server: ServerProcess | None = None

    @property
    def direct_url(self) -> str:
        """The server itself."""
        assert self._server is not None
        return self._server.base_url

    @property
    def url(self) -> str:
        """By way of the wire, or of the network; the same for all servers that are started here."""
        if self._host is not None:
            return f"http://{self._host.address}:{self._port}"
        return f"http://127.0.0.1:{self.wire.port}"

    async def start(self) -> None:
        """Returns when it is ready."""
        server: ServerProcess
        if self._host is not None:
            server = HostServer(self._arguments, self._host, self._port)
            self._port = server.port
        else:
            if not self.wire.port:
                await self.wire.start()
            server = ServerProcess(self._arguments)
            self.wire.target_port = server.port
        self._server = await asyncio.to_thread(server.__enter__)

    def _signal(self, number: signal.Signals) -> None:
        assert self._server is not None and self._server.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.process.pid, number)

    async def kill(self) -> None:
        """Server and engine die at once, and a new one is started."""
        self._signal(signal.SIGKILL)
        await self.end()
        await self.start()

    async def kill_core(self) -> None:
        """The engine's process dies, its server says so and ends; a new one is started."""
        assert self._server is not None
        for pid in self._server.child_pids():
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(1.0)
        await self.end()
        await self.start()

    async def stop(self, time_s: float) -> None:
        """Nothing moves for this time, and then goes on as if nothing had been."""
        self._signal(signal.SIGSTOP)
        await asyncio.sleep(time_s)
        self._signal(signal.SIGCONT)

    async def slow(self, time_s: float) -> None:
        """Pieces come at a slow pace for this time."""
        self.wire.pace_s = _SLOW_S
        await asyncio.sleep(time_s)
        self.wire.pace_s = 0.0

    async def reset(self, time_s: float) -> None:
        """All connections are reset, a few times within this time."""
        for _ in range(_NUM_RESETS):
            self.wire.reset()
            await asyncio.sleep(time_s / _NUM_RESETS)

    async def half_open(self, time_s: float) -> None:
        """Connections stay, and new ones are accepted, but not a byte passes for this time."""
        self.wire.is_open.clear()
        await asyncio.sleep(time_s)
        self.wire.is_open.set()

    async def partition(self, time_s: float) -> None:
        """Nothing reaches the host or leaves it for this time, and nobody is told."""
        assert self._host is not None
        await asyncio.to_thread(self._host.cut)
        await asyncio.sleep(time_s)
        await asyncio.to_thread(self._host.join)

    async def flap(self, time_s: float) -> None:
        """The host is cut off again and again for a moment, so that packets are lost in bursts."""
        for _ in range(max(1, int(time_s / (2 * _FLAP_S)))):
            await self.partition(_FLAP_S)
            await asyncio.sleep(_FLAP_S)

    async def delay(self, time_s: float) -> None:
        """What the host sends comes late for this time."""
        await self._slow_down(time_s, delay_ms=_DELAY_MS)

    async def loss(self, time_s: float) -> None:
        """A share of what the host sends is lost, one packet at a time."""
        await self._slow_down(time_s, loss_percent=_LOSS_PERCENT)

    async def _slow_down(self, time_s: float, **how: float) -> None:
        assert self._host is not None
        await asyncio.to_thread(functools.partial(self._host.slow_down, **how))
        await asyncio.sleep(time_s)
        await asyncio.to_thread(self._host.slow_down)

    async def end(self) -> None:
        """The server is gone when this returns."""
        if self._server is not None:
            self._signal(signal.SIGCONT)
            self._signal(signal.SIGKILL)
            await asyncio.to_thread(self._server.__exit__, None, None, None)
            self._server = None

    async def is_ready(self) -> bool:
        """It takes requests, by way of the wire."""
        try:
            async with httpx.AsyncClient(timeout=2.0) as client:
                return (await client.get(f"{self.url}/ready")).status_code == 200
        except httpx.HTTPError:
            return False
