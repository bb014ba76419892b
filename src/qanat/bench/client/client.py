"""The client: connections that are kept and used again, a deadline for each request, and whole answers where wanted."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from qanat.bench.client.connection import Connection
from qanat.bench.client.framing import Framer
from qanat.bench.client.recording import Recording, Store
from qanat.deploy.verify.address import Address

ASK_TIMEOUT_S = 60.0
WhenDone = Callable[[Recording], None]


@dataclass(frozen=True)
class Reply:
    """A whole answer: its status, 0 without one, its body, and what went wrong, if anything did."""

    status: int
    body: bytes
    failure: str = ""
    message: str = ""

    @property
    def is_ok(self) -> bool:
        """True for a complete answer with status 200."""
        return not self.failure and self.status == 200


class Client:
    """Sends requests to one address. To be made where an event loop runs.

    Args:
        address: of the server.
        tls: for https.
        store: keeps what comes in.
        timeout_s: for each request, from its sending.

    Attributes:
        num_opened: connections opened so far.
    """

    def __init__(self, address: Address, tls: ssl.SSLContext | None, store: Store, timeout_s: float) -> None:
        self._address = address
        self._tls = tls
        self._store = store
        self._timeout_s = timeout_s
        self._free: list[Connection] = []
        self._running: dict[Recording, tuple[WhenDone, bytes, asyncio.TimerHandle]] = {}
        self._opening: dict[Recording, asyncio.Task[None]] = {}
        self._connections: dict[Recording, Connection] = {}
        self._loop = asyncio.get_running_loop()
        self.num_opened = 0

    def send(
        self, recording: Recording, request: bytes, when_done: WhenDone, timeout_s: float | None = None
    ) -> None:
        """Begins with a request now.

        Args:
            recording: takes its times and its answer.
            request: head and body.
            when_done: called when the recording has ended.
            timeout_s: in place of the client's own.
        """
        recording.sent_ns = time.monotonic_ns()
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        timer = self._loop.call_later(limit_s, self._time_out, recording, limit_s)
        self._running[recording] = (when_done, request, timer)
        self._start(recording, request)

    async def ask(self, request: bytes, timeout_s: float = ASK_TIMEOUT_S) -> Reply:
        """Sends a request and waits for the whole answer, whatever it is, but no longer than any request may take."""
        recording = Recording(-1, time.monotonic_ns())
        is_over = asyncio.Event()
        self.send(recording, request, lambda _: is_over.set(), min(timeout_s, self._timeout_s))
        await is_over.wait()
        if recording.failure:
            return Reply(recording.status, b"", recording.failure, recording.message)
        framer = Framer()
        body = b"".join(framer.feed(piece) for _, piece in self._store.read(recording))
        self._store.give_back(recording)
        return Reply(recording.status, body)

    def close(self) -> None:
        """Ends everything that is under way and closes all connections."""
        for task in self._opening.values():
            task.cancel()
        for connection in list(self._connections.values()):
            connection.fail("cancelled", "the run was ended")
        for connection in self._free:
            connection.abort()
        self._free.clear()

    def _start(self, recording: Recording, request: bytes) -> None:
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed:
                self._connections[recording] = connection
                connection.send(recording, request)
                return
        self._opening[recording] = self._loop.create_task(self._open(recording, request))

    async def _open(self, recording: Recording, request: bytes) -> None:
        address = self._address
        try:
            _, connection = await self._loop.create_connection(
                lambda: Connection(self._store, self._over), address.host, address.port, ssl=self._tls
            )
        except (OSError, ssl.SSLError, asyncio.CancelledError) as error:
            self._opening.pop(recording, None)
            if not recording.end_ns:
                recording.failure, recording.message = _describe(error, address)
                recording.end_ns = time.monotonic_ns()
                self._done(recording)
            return
        self._opening.pop(recording, None)
        self.num_opened += 1
        if self._tls is None:
            connection.watch()
        if recording.end_ns:  # its deadline has passed
            connection.abort()
            return
        self._connections[recording] = connection
        connection.send(recording, request)

    def _over(self, connection: Connection, recording: Recording) -> None:
        self._connections.pop(recording, None)
        if not connection.is_closed:
            self._free.append(connection)
        elif recording.failure == "cut" and connection.num_requests > 1 and not recording.times_ns:
            # The server had closed the kept connection before it saw the request.
            recording.failure, recording.message, recording.end_ns = "", "", 0
            self._start(recording, self._running[recording][1])
            return
        self._done(recording)

    def _time_out(self, recording: Recording, limit_s: float) -> None:
        message = f"no complete answer within {limit_s:g} s"
        if recording in self._connections:
            self._connections[recording].fail("timeout", message)
        elif recording in self._opening:
            recording.failure, recording.message = "timeout", message
            recording.end_ns = time.monotonic_ns()
            self._opening[recording].cancel()
            self._done(recording)

    def _done(self, recording: Recording) -> None:
        when_done, _, timer = self._running.pop(recording)
        timer.cancel()
        self._store.keep(recording)
        when_done(recording)


def _describe(error: BaseException, address: Address) -> tuple[str, str]:
    """Kind and text of a connection that did not come about."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled", "the run was ended"
    if isinstance(error, ssl.SSLError):
        return "tls", error.reason or str(error)
    if isinstance(error, ConnectionRefusedError):
        return "refused", f"nothing listens on {address.authority}"
    if isinstance(error, socket.gaierror):
        return "unreachable", f"{address.host}: {error.strerror}"
    return "unreachable", error.strerror or str(error) if isinstance(error, OSError) else str(error)
