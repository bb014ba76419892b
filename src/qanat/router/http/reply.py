"""How an answer is framed on a client's connection: by its length, in chunks, or until the connection closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from qanat.router.http.headers import status_line, without_hop_by_hop
from qanat.router.model import Header

# Below this a copy into one piece is cheaper than a write of several.
_MAX_JOINED_BYTES = 16384
BODILESS = (204, 304)
"""Statuses of answers that have no body, whatever their headers say."""


class Reply:
    """The `Downstream` of one call; the connection tells it when the client is slow or gone.

    Args:
        finish: called once, when the answer is complete or cut: True if the connection can take the next one.
    """

    __slots__ = (
        "_transport",
        "_loop",
        "_finish",
        "_is_head",
        "_is_http_1_0",
        "_keeps_alive",
        "_head",
        "_is_chunked",
        "_num_left_bytes",
        "_has_body",
        "_listener",
        "_is_paused",
        "_waiter",
        "status",
        "is_started",
        "is_ended",
        "is_gone",
        "num_body_bytes",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        finish: Callable[[bool], None],
        *,
        is_head: bool,
        is_http_1_0: bool,
        keeps_alive: bool,
        is_paused: bool,
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._finish = finish
        self._is_head = is_head
        self._is_http_1_0 = is_http_1_0
        self._keeps_alive = keeps_alive
        self._head = b""
        self._is_chunked = False
        self._num_left_bytes = -1
        self._has_body = True
        self._listener: Callable[[bool], None] | None = None
        self._is_paused = is_paused
        self._waiter: asyncio.Future[None] | None = None
        self.status = 0
        self.is_started = False
        self.is_ended = False
        self.is_gone = False
        self.num_body_bytes = 0

    def close_after(self) -> None:
        """The connection ends with this answer; said to the client if the head is still here."""
        self._keeps_alive = False

    def start(self, status: int, headers: Sequence[Header]) -> None:
        """See Downstream."""
        if self.is_started:
            raise RuntimeError("the answer has a status already")
        self.is_started = True
        self.status = status
        self._has_body = not self._is_head and status not in BODILESS
        kept = without_hop_by_hop(headers)
        length = next((value for name, value in kept if name == b"content-length"), None)
        lines = [b"%b: %b\r\n" % header for header in kept]
        if length is not None:
            self._num_left_bytes = int(length)
        elif self._has_body and self._is_http_1_0:
            self._keeps_alive = False
        elif status not in BODILESS:
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self._keeps_alive:
            lines.append(b"connection: close\r\n")
        elif self._is_http_1_0:
            lines.append(b"connection: keep-alive\r\n")
        self._head = b"%b%b\r\n" % (status_line(status), b"".join(lines))
        self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """See Flow."""
        if self._head and not self.is_gone:
            head, self._head = self._head, b""
            self._transport.write(head)

    def write(self, data: bytes) -> None:
        """See Downstream."""
        if not self.is_started or self.is_ended:
            raise RuntimeError("a body is written between start and end")
        if not data or not self._has_body or self.is_gone:
            return
        size = len(data)
        self.num_body_bytes += size
        head = self._head
        if head:
            self._head = b""
        if self._is_chunked:
            if size <= _MAX_JOINED_BYTES:
                self._transport.write(b"%b%x\r\n%b\r\n" % (head, size, data))
            else:
                self._transport.writelines((head, b"%x\r\n" % size, data, b"\r\n"))
            return
        if self._num_left_bytes >= 0:
            self._num_left_bytes -= size
            if self._num_left_bytes < 0:
                self.abort()
                return
        self._transport.write(head + data if head else data)

    async def drain(self) -> None:
        """See Downstream."""
        self.flush()
        if self._is_paused and not self.is_gone:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def end(self) -> None:
        """See Downstream."""
        if self.is_ended:
            return
        if not self.is_started:
            raise RuntimeError("an answer needs a status before its end")
        if self._num_left_bytes > 0 and self._has_body:
            self.abort()
            return
        self.is_ended = True
        head, self._head = self._head, b""
        if not self.is_gone:
            if self._is_chunked and self._has_body:
                self._transport.write(head + b"0\r\n\r\n")
            elif head:
                self._transport.write(head)
        self._finish(self._keeps_alive)

    def abort(self) -> None:
        """See Downstream."""
        if not self.is_ended:
            self.is_ended = True
            self._head = b""
            self._transport.abort()
            self._finish(False)

    def set_listener(self, listener: Callable[[bool], None] | None) -> None:
        """See Flow."""
        self._listener = listener
        if listener is not None and self._is_paused:
            listener(True)

    def set_paused(self, is_paused: bool) -> None:
        """The client is slow, or reads again."""
        self._is_paused = is_paused
        if self._listener is not None:
            self._listener(is_paused)
        if not is_paused:
            self._wake()

    def set_gone(self) -> None:
        """The client is no more; a writer that waits for it goes on."""
        self.is_gone = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
