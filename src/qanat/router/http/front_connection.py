"""One client's connection: bytes become calls, which are answered one after the other in the order they came."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any, Protocol, cast

from qanat.core.errors import QanatError
from qanat.router.http.deadline import Deadline
from qanat.router.http.exchange import Handler, respond_error
from qanat.router.http.limits import FrontLimits
from qanat.router.http.reply import Reply
from qanat.router.http.request_reader import HeadCheck, Incoming, RequestReader
from qanat.router.model import Call

_LOG = logging.getLogger(__name__)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_TOO_MANY = "too many clients are connected; try again later"


class InternalError(QanatError):
    """A defect of the router itself; the log has the details."""

    code = "router_error"


class TooManyConnectionsError(QanatError):
    """More clients are connected than this process takes."""

    code = "too_many_connections"
    status = 503


class Host(Protocol):
    """What a connection asks of the server that it belongs to."""

    handler: Handler
    check: HeadCheck | None
    limits: FrontLimits
    is_draining: bool

    @property
    def num_connections(self) -> int:
        """Connections that are open."""

    def opened(self, connection: FrontConnection) -> None:
        """A client has connected."""

    def lost(self, connection: FrontConnection) -> None:
        """A connection is closed."""

    def next_id(self) -> str:
        """An id for a call."""

    def run(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts the task of a call, which is counted until its end."""


class FrontConnection(asyncio.Protocol):
    """Reads ahead while a call runs, as far as the limits allow, and sees at once when the client goes away."""

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop
        self._limits = host.limits
        self._reader = RequestReader(self._limits, host.check)
        self._queue: deque[Incoming] = deque()
        self._reply: Reply | None = None
        self._task: asyncio.Task[None] | None = None
        self._deadline = Deadline(loop, self._on_silence)
        self._stall: Deadline | None = None
        self._is_paused = False
        self._is_reading = True
        self._is_refused = False
        self._is_closed = False
        self._client_host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(self._limits.max_unsent_bytes)
        peer = transport.get_extra_info("peername")
        self._client_host = str(peer[0]) if isinstance(peer, tuple) else ""
        self._host.opened(self)
        self._deadline.set(self._limits.idle_timeout_s)
        if self._host.is_draining:
            self._is_closed = True
            self._transport.close()
        elif self._host.num_connections > self._limits.max_connections:
            self._is_refused = True
            self._queue.append(Incoming(refusal=TooManyConnectionsError(_TOO_MANY, retry_after_s=1)))
            self._start_next()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._is_refused or self._is_closed:
            return
        reader = self._reader
        was_in_head = reader.is_in_head
        for incoming in reader.feed(data):
            self._queue.append(incoming)
            self._is_refused = incoming.refusal is not None
        if self._reply is None:
            if self._queue:
                self._start_next()
            self._continue_if_expected()
        if self._is_refused:
            if self._reply is not None:
                self._deadline.set(None)
            return
        if reader.is_in_head:
            if not was_in_head:
                self._deadline.set(self._limits.head_timeout_s)
        elif reader.is_in_body:
            self._deadline.set(self._limits.body_timeout_s)
        elif self._reply is not None:
            self._deadline.set(None)
        num_ahead = reader.num_body_bytes + sum(len(each.body) for each in self._queue)
        is_far = len(self._queue) >= self._limits.max_pipelined or num_ahead > self._limits.max_ahead_bytes
        if self._reply is not None and is_far and self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()
            self._deadline.set(None)  # its silence is ours

    def _continue_if_expected(self) -> None:
        if self._reply is None and self._reader.take_expectation():
            self._transport.write(_CONTINUE)

    def _start_next(self) -> None:
        incoming = self._queue.popleft()
        reply = self._reply = Reply(
            self._transport,
            self._loop,
            self._on_reply_end,
            is_head=incoming.method == "HEAD",
            is_http_1_0=incoming.is_http_1_0,
            keeps_alive=incoming.keeps_alive and not self._host.is_draining,
            is_paused=self._is_paused,
        )
        if incoming.refusal is not None:
            respond_error(reply, incoming.refusal)
            return
        call = Call(
            self._host.next_id(),
            incoming.method,
            incoming.target,
            incoming.headers,
            incoming.body,
            self._client_host,
        )
        self._task = self._host.run(self._loop, self._run(call, reply))

    async def _run(self, call: Call, reply: Reply) -> None:
        try:
            await self._host.handler(call, reply)
            if not reply.is_ended and not reply.is_gone:
                _LOG.error("call %s: the handler returned without an end of the answer", call.id)
                self._fail(reply)
        except asyncio.CancelledError:
            reply.abort()
        except Exception:
            if not reply.is_gone:
                _LOG.exception("call %s: the handler failed", call.id)
                self._fail(reply)

    def _fail(self, reply: Reply) -> None:
        if reply.is_started:
            reply.abort()
        else:
            reply.close_after()
            respond_error(reply, InternalError("the router failed at this request; its log says why"))

    def _on_reply_end(self, keeps_alive: bool) -> None:
        self._reply = None
        if self._is_closed:
            return
        if not keeps_alive:
            self._queue.clear()
            if self._is_refused:
                self._linger()
            else:
                self._is_closed = True
                self._transport.close()
            return
        self._read_on()
        if self._queue:
            # A turn later, so that answers given at once do not pile up on the stack.
            self._loop.call_soon(self._start_queued)
        elif not self._reader.is_in_message:
            self._deadline.set(self._limits.idle_timeout_s)
        else:
            self._continue_if_expected()

    def _read_on(self) -> None:
        if not self._is_reading and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()
            if self._reader.is_in_message:
                self._deadline.set(self._limits.body_timeout_s)

    def _start_queued(self) -> None:
        if self._reply is None and self._queue and not self._is_closed:
            self._start_next()

    def _linger(self) -> None:
        """A socket closed with bytes unread resets the connection, and the client may never see the refusal."""
        self._deadline.set(self._limits.linger_s)
        self._read_on()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _on_silence(self) -> None:
        """The client sent nothing, or lingered after its refusal, for too long."""
        if self._is_refused or not self._reader.is_in_message:
            self.cut()
            return
        self._is_refused = True
        self._queue.append(self._reader.late())
        if self._reply is None:
            self._start_next()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._is_paused = True
        if self._stall is None:
            self._stall = Deadline(self._loop, self.cut)
        self._stall.set(self._limits.stall_timeout_s)
        if self._reply is not None:
            self._reply.set_paused(True)

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._is_paused = False
        if self._stall is not None:
            self._stall.set(None)
        if self._reply is not None:
            self._reply.set_paused(False)

    def eof_received(self) -> None:
        """See asyncio.Protocol: a client that closes its side wants no answer any more."""
        self._give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._give_up()
        self._deadline.cancel()
        if self._stall is not None:
            self._stall.cancel()
        self._host.lost(self)

    def _give_up(self) -> None:
        self._is_closed = True
        self._queue.clear()
        reply = self._reply
        if reply is not None:
            self._reply = None
            reply.set_gone()
            if self._task is not None:
                self._task.cancel()

    def drain(self) -> None:
        """No further call on this connection; one that runs or arrives is answered with `Connection: close`."""
        if self._reply is not None:
            self._reply.close_after()
        elif not self._queue and not self._reader.is_in_message and not self._is_refused:
            self._is_closed = True
            self._transport.close()

    def cut(self) -> None:
        """Closes the connection now, whatever is on it."""
        self._give_up()
        self._transport.abort()
