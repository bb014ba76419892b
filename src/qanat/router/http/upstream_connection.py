"""One connection to an engine and the answer that is on it."""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Callable
from typing import cast

import httptools

from qanat.router.http.deadline import Deadline
from qanat.router.http.errors import UpstreamBroken, UpstreamTimeout
from qanat.router.http.exchange import Flow
from qanat.router.http.reply import BODILESS
from qanat.router.model import Header

_MAX_HEAD_BYTES = 256 << 10
_MAX_READ_AHEAD_BYTES = 256 << 10


class UpstreamConnection(asyncio.Protocol):
    """Parses answers where they arrive; a piece of a body goes straight to the one who pumps it.

    Args:
        lost: told once when the connection is closed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoint_name: str,
        lost: Callable[[UpstreamConnection], None],
    ) -> None:
        self._loop = loop
        self._name = endpoint_name
        self._lost = lost
        self._parser = httptools.HttpResponseParser(self)
        self._deadline = Deadline(loop, self._on_silence)
        self._poll = select.poll()
        self.is_made = False
        self._is_closed = False
        self._is_reading = True
        self._is_busy = False
        self._is_complete = True
        self._keeps_alive = False
        self._reset()

    def _reset(self) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._receive: Callable[[bytes], None] | None = None
        self._error: BaseException | None = None
        self._pieces: list[bytes] = []
        self._ahead: deque[bytes] = deque()
        self._num_ahead_bytes = 0
        self._num_head_bytes = 0
        self._headers: list[Header] = []
        self._status = 0
        self._has_head = False
        self._ends_with_connection = False
        self._is_flow_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_made = True
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def is_fresh(self) -> bool:
        """Nothing has come on the unused connection, an end of it neither, not even what the loop has yet to see."""
        return not self._is_closed and not self._transport.is_closing() and not self._poll.poll(0)

    def send(
        self, head: bytes, body: bytes, is_head: bool, first_byte_s: float | None, idle_s: float | None
    ) -> None:
        """Writes a request; the answer to come is of a HEAD request if `is_head`."""
        self._reset()
        self._is_busy = True
        self._is_complete = False
        self._keeps_alive = False
        self._is_head = is_head
        self._first_byte_s = first_byte_s
        self._idle_s = idle_s
        self._deadline.set(first_byte_s)
        if len(body) <= _MAX_READ_AHEAD_BYTES:
            self._transport.write(head + body if body else head)
        else:
            self._transport.writelines((head, body))

    def set_idle_timeout(self, idle_s: float | None) -> None:
        """See Answer.set_idle_timeout."""
        self._idle_s = idle_s
        if self._has_head and self._is_reading and not self._is_complete:
            self._deadline.set(idle_s)

    async def wait_for_head(self) -> tuple[int, list[Header]]:
        """Status and headers. Raises UpstreamTimeout and UpstreamBroken."""
        while not self._has_head:
            await self._wait()
        return self._status, self._headers

    async def pump(self, receive: Callable[[bytes], None], flow: Flow | None) -> None:
        """See Answer.pump."""
        while self._ahead:
            receive(self._ahead.popleft())
        self._num_ahead_bytes = 0
        if self._is_complete:
            return
        self._receive = receive
        self._resume_if_wanted()
        if flow is not None:
            flow.flush()
            flow.set_listener(self._set_flow_paused)
        try:
            while not self._is_complete:
                await self._wait()
        finally:
            self._receive = None
            if flow is not None:
                flow.set_listener(None)

    async def next_piece(self) -> bytes:
        """The next bytes of the body; empty at its end."""
        while not self._ahead:
            if self._is_complete:
                return b""
            await self._wait()
        piece = self._ahead.popleft()
        self._num_ahead_bytes -= len(piece)
        self._resume_if_wanted()
        return piece

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._error is not None and not self._ahead:
            raise self._error

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if not self._is_busy:
            self.discard()
            return
        had_head = self._has_head
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(self.broken("wants to change the protocol"))
            return
        except httptools.HttpParserError as error:
            self._fail(self.broken(f"does not speak HTTP/1.1: {error}"))
            return
        if not self._has_head:
            self._num_head_bytes += len(data)
            if self._num_head_bytes > _MAX_HEAD_BYTES:
                self._fail(self.broken(f"sent headers of more than {_MAX_HEAD_BYTES} bytes"))
            return
        pieces = self._pieces
        if pieces:
            self._pieces = []
            self._deliver(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._is_complete:
            self._deadline.set(None)
            self._wake()
        else:
            if self._is_reading:
                self._deadline.set(self._idle_s)
            if not had_head:
                self._wake()

    def _deliver(self, data: bytes) -> None:
        if self._receive is not None:
            try:
                self._receive(data)
            except Exception as error:
                self._fail(error)
            return
        self._ahead.append(data)
        self._num_ahead_bytes += len(data)
        if self._num_ahead_bytes > _MAX_READ_AHEAD_BYTES and self._is_reading and not self._is_complete:
            self._stop_reading()
        self._wake()

    def on_message_begin(self) -> None:
        """An answer begins; one that nobody asked for shows that this connection is out of step."""
        if self._is_complete:
            self._keeps_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the answer, or a trailer after its body, which is dropped."""
        if not self._has_head:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole, or that of an answer before the answer (1xx), which is skipped."""
        if self._has_head:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._headers = []
            return
        self._status = status
        self._has_head = True
        is_framed = any(name in (b"content-length", b"transfer-encoding") for name, _ in self._headers)
        if self._is_head or status in BODILESS:
            # The parser would wait for the body that the headers speak of.
            self._complete(self._parser.should_keep_alive() or not is_framed)
            self._parser = httptools.HttpResponseParser(self)
        else:
            self._ends_with_connection = not is_framed

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self._is_complete:
            self._keeps_alive = False  # an answer without a body has one after all
        else:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._has_head and not self._is_complete:
            self._complete(self._parser.should_keep_alive())

    def _complete(self, keeps_alive: bool) -> None:
        self._is_complete = True
        self._keeps_alive = keeps_alive

    def _set_flow_paused(self, is_paused: bool) -> None:
        self._is_flow_paused = is_paused
        if is_paused and self._is_reading:
            self._stop_reading()
        else:
            self._resume_if_wanted()

    def _stop_reading(self) -> None:
        if not self._is_closed:
            self._is_reading = False
            self._deadline.set(None)
            self._transport.pause_reading()

    def _resume_if_wanted(self) -> None:
        if self._is_reading or self._is_flow_paused or self._is_closed:
            return
        if self._num_ahead_bytes <= _MAX_READ_AHEAD_BYTES // 2:
            self._is_reading = True
            self._deadline.set(self._idle_s)
            self._transport.resume_reading()

    def _on_silence(self) -> None:
        if not self._is_busy:
            self.discard()
            return
        if self._has_head:
            message, phase = f"sent nothing for {self._idle_s:g} s in the middle of its answer", "idle"
        else:
            message, phase = f"did not begin to answer within {self._first_byte_s:g} s", "first_byte"
        text = f"endpoint {self._name} {message}"
        self._fail(UpstreamTimeout(text, self._name, phase, is_answered=self._has_head))

    def broken(self, what: str) -> UpstreamBroken:
        """The error of an engine that `what`."""
        return UpstreamBroken(f"endpoint {self._name} {what}", self._name, is_answered=self._has_head)

    def _fail(self, error: BaseException) -> None:
        if self._error is None and not self._is_complete:
            self._error = error
        self.discard()
        self._wake()

    def eof_received(self) -> None:
        """See asyncio.Protocol."""
        self._on_end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._on_end(exc)
        self._is_closed = True
        self._deadline.cancel()
        self._lost(self)

    def _on_end(self, exc: Exception | None) -> None:
        self._is_closed = True
        if self._is_complete or self._error is not None:
            return
        if self._has_head and self._ends_with_connection and exc is None:
            self._complete(False)
            self._wake()
            return
        place = "in the middle of its answer" if self._has_head else "before it answered"
        self._fail(self.broken(f"closed the connection {place}" + (f": {exc}" if exc else "")))

    def release(self, keepalive_s: float) -> bool:
        """After a request: True if another may follow, within `keepalive_s`."""
        is_reusable = self._is_complete and self._keeps_alive and not self._is_closed
        self._is_busy = False
        if is_reusable:
            if not self._is_reading:
                self._is_reading = True
                self._transport.resume_reading()
            self._reset()
            self._deadline.set(keepalive_s)
        return is_reusable

    def discard(self) -> None:
        """Closes now; an engine that is at work sees its client go."""
        self._is_closed = True
        if self.is_made:
            self._transport.abort()
