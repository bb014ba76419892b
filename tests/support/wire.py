"""A wire between whoever connects and a port: it can be late, lossy, slow, silent, or cut between any two bytes.

What the kernel's netem does to packets, done to bytes on the loopback interface, where there is no netem. TCP makes
lost packets late ones, so loss is a delay here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

RETRANSMIT_S = 0.2
"""What a lost packet costs: the least time after which Linux sends it again."""


@dataclass
class Wire:
    """Passes bytes on, in order.

    Attributes:
        target_port: where it leads.
        delay_s, jitter_s: every piece arrives so much later, and up to so much more.
        pace_s: least time between two pieces.
        loss: share of the pieces that are lost once.
        max_piece: bytes of the largest piece.
        cuts: for each POST request to come, the bytes of its answer after which the connection is reset.
        is_open: cleared to be silent, with its connections open.
        port: where it listens.
    """

    target_port: int = 0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    pace_s: float = 0.0
    loss: float = 0.0
    max_piece: int = 65536
    cuts: list[int] = field(default_factory=list)
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    _server: asyncio.Server | None = None
    _passing: set[_Connection] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listens on a free port."""
        self.is_open.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Listens no more, and resets what is open."""
        if self._server is not None:
            self._server.close()
        self.reset()

    def reset(self) -> None:
        """Every connection ends at once, in the middle of whatever was on its way."""
        for connection in list(self._passing):
            connection.reset()

    def lateness_s(self) -> float:
        """Of the next piece."""
        lost_s = RETRANSMIT_S if self.loss and self.rng.random() < self.loss else 0.0
        return self.delay_s + self.rng.uniform(0.0, self.jitter_s) + lost_s

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self.is_open.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            connection = _Connection(self, writer, far_writer)
            self._passing.add(connection)
            try:
                await connection.run(reader, far_reader)
            finally:
                self._passing.discard(connection)
                far_writer.close()
        writer.close()


@dataclass(eq=False)
class _Connection:
    wire: Wire
    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    bytes_left: int | None = None

    async def run(self, near: asyncio.StreamReader, far: asyncio.StreamReader) -> None:
        ways = (self._carry(near, self.far, is_asking=True), self._carry(far, self.near, is_asking=False))
        await asyncio.gather(*ways, return_exceptions=True)

    async def _carry(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, is_asking: bool
    ) -> None:
        """One way, on which any number of pieces may be at a time."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=1000)
        reading = asyncio.ensure_future(self._read(source, pieces))
        try:
            await self._write(pieces, to, is_asking=is_asking)
        finally:
            reading.cancel()
            # Either end's going is the other's: what was on its way is lost with a killed process.
            to.close()

    async def _read(self, source: asyncio.StreamReader, pieces: asyncio.Queue[tuple[float, bytes]]) -> None:
        clock, due_s = asyncio.get_running_loop().time, 0.0
        data = b"begin"
        while data:
            try:
                data = await source.read(self.wire.max_piece)
            except OSError:
                data = b""
            due_s = max(clock() + self.wire.lateness_s(), due_s + self.wire.pace_s)
            await pieces.put((due_s, data))

    async def _write(
        self, pieces: asyncio.Queue[tuple[float, bytes]], to: asyncio.StreamWriter, *, is_asking: bool
    ) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due_s, data = await pieces.get()
            await asyncio.sleep(due_s - clock())
            await self.wire.is_open.wait()
            if not data:
                return
            if is_asking and data.startswith(b"POST") and self.wire.cuts:
                self.bytes_left = self.wire.cuts.pop(0)
            elif not is_asking and self.bytes_left is not None:
                data = data[: self.bytes_left]
                self.bytes_left -= len(data)
            to.write(data)
            await to.drain()
            if self.bytes_left == 0:
                self.reset()
                return

    def reset(self) -> None:
        """Both ends are told by a reset, and get nothing that was not there yet."""
        for writer in (self.near, self.far):
            with contextlib.suppress(OSError):
                end: socket.socket = writer.get_extra_info("socket")
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


@contextlib.asynccontextmanager
async def wires(target_ports: Sequence[int], **how: float) -> AsyncIterator[list[Wire]]:
    """One to each port, with these attributes, as long as the context lasts."""
    made = [Wire(port, rng=random.Random(port), **how) for port in target_ports]  # type: ignore[arg-type]
    try:
        for wire in made:
            await wire.start()
        yield made
    finally:
        for wire in made:
            wire.close()
