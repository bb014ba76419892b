"""An engine that can be hurt: a server with the demo model, and a wire to it that can become slow or silent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

import httpx

from tests.support.server_process import ServerProcess

_SLOW_S = 0.05


class Wire:
    """Passes bytes between whoever connects and a port; slow, or silent with its connections open, when told.

    Attributes:
        port: where it listens.
        target_port: where it leads.
        delay_s: between two pieces.
        is_open: cleared to be silent.
    """

    def __init__(self) -> None:
        self.port = 0
        self.target_port = 0
        self.delay_s = 0.0
        self.is_open = asyncio.Event()
        self.is_open.set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self.is_open.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            ways = [self._pass(reader, far_writer), self._pass(far_reader, writer)]
            await asyncio.gather(*ways, return_exceptions=True)
        writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self.is_open.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()
        finally:
            # Either end's going is the other's: what was on its way is lost with a killed process.
            writer.close()


class ChaosEngine:
    """One engine behind a wire.

    Args:
        arguments: of `qanat serve`.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self.wire = Wire()
        self._arguments = arguments
        self._server: ServerProcess | None = None

    @property
    def direct_url(self) -> str:
        """The server itself."""
        return f"http://127.0.0.1:{self.wire.target_port}"

    @property
    def url(self) -> str:
        """By way of the wire."""
        return f"http://127.0.0.1:{self.wire.port}"

    async def start(self) -> None:
        """Returns when it is ready."""
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
        """Every piece comes late for this time."""
        self.wire.delay_s = _SLOW_S
        await asyncio.sleep(time_s)
        self.wire.delay_s = 0.0

    async def half_open(self, time_s: float) -> None:
        """Connections stay, and new ones are accepted, but not a byte passes for this time."""
        self.wire.is_open.clear()
        await asyncio.sleep(time_s)
        self.wire.is_open.set()

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
