"""The connections of one endpoint: kept for the next request, bounded in number, fresh when used again."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections import deque

from qanat.router.http.errors import UpstreamTimeout, UpstreamUnreachable
from qanat.router.http.upstream_connection import UpstreamConnection
from qanat.router.model import Endpoint

_LOCAL_FAULTS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)


class ConnectionPool:
    """Hands out the connection used last, so that those not needed grow old and close."""

    def __init__(
        self,
        endpoint: Endpoint,
        loop: asyncio.AbstractEventLoop,
        tls: ssl.SSLContext | None,
        max_connections: int,
        keepalive_s: float,
    ) -> None:
        self.endpoint = endpoint
        self.host_header = endpoint.address.encode("idna" if not endpoint.host.isascii() else "ascii")
        self.num_open = 0
        self._loop = loop
        self._tls = tls
        self._max_connections = max_connections
        self._keepalive_s = keepalive_s
        self._idle: list[UpstreamConnection] = []
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    def take_idle(self) -> UpstreamConnection | None:
        """A kept connection that the engine has not closed; None if there is none."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh():
                return connection
            connection.discard()
        return None

    async def open(self, timeout_s: float | None) -> UpstreamConnection:
        """A new connection, or the first that another request gives back while as many as may be are open.

        Raises:
            UpstreamUnreachable: the engine refused, or its name is unknown.
            UpstreamTimeout: neither came in time.
        """
        name = self.endpoint.name
        try:
            async with asyncio.timeout(timeout_s):
                while self.num_open >= self._max_connections:
                    await self._wait()
                    connection = self.take_idle()
                    if connection is not None:
                        return connection
                return await self._connect()
        except TimeoutError:
            limit = "in time" if timeout_s is None else f"within {timeout_s:g} s"
            message = f"endpoint {name}: no connection to {self.endpoint.address} {limit}"
            raise UpstreamTimeout(message, name, "connect", is_sent=False) from None
        except OSError as error:
            message = f"endpoint {name}: cannot connect to {self.endpoint.address}: {error.strerror or error}"
            unreachable = UpstreamUnreachable(message, name, is_sent=False)
            unreachable.is_local = error.errno in _LOCAL_FAULTS
            raise unreachable from None

    async def _connect(self) -> UpstreamConnection:
        connection = UpstreamConnection(self._loop, self.endpoint.name, self._lost)
        self.num_open += 1
        try:
            await self._loop.create_connection(
                lambda: connection, self.endpoint.host, self.endpoint.port, ssl=self._tls
            )
        except BaseException:
            if connection.is_made:
                connection.discard()  # it is counted until it is lost
            else:
                self._release()
            raise
        return connection

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def give_back(self, connection: UpstreamConnection) -> None:
        """After a request: kept if the answer is complete and the engine keeps it, else closed at once."""
        if self._is_closed or not connection.release(self._keepalive_s):
            connection.discard()
            return
        self._idle.append(connection)
        self._wake()

    def _lost(self, connection: UpstreamConnection) -> None:
        """Called once for each connection that was made, when it is closed."""
        if connection in self._idle:
            self._idle.remove(connection)
        self._release()

    def _release(self) -> None:
        self.num_open -= 1
        self._wake()

    def close(self) -> None:
        """Closes what is unused now, and the rest as it is given back."""
        self._is_closed = True
        for connection in self._idle[:]:
            connection.discard()
        self._idle.clear()
