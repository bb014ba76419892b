"""The client side of the router: requests to engines over pooled connections, answers as raw bytes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from qanat.router.http.exchange import Flow
from qanat.router.http.headers import request_head, without_hop_by_hop
from qanat.router.http.upstream_connection import UpstreamConnection
from qanat.router.http.upstream_pool import ConnectionPool
from qanat.router.model import Endpoint, Header


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long an engine may be silent; None waits for ever.

    Attributes:
        connect_s: until a connection is open, the wait for a free one under the endpoint's limit included.
        first_byte_s: from the request to the head of its answer.
        idle_s: between two pieces of the body. Does not run while the client is too slow to take more.
    """

    connect_s: float | None = 5.0
    first_byte_s: float | None = 600.0
    idle_s: float | None = 60.0


DEFAULT_TIMEOUTS = Timeouts()


class Answer:
    """What an engine answers: status and headers at once, the body by one of `read`, `body` or `pump`.

    Attributes:
        headers: names in lower case, hop-by-hop ones left out.
    """

    __slots__ = ("status", "headers", "_connection")

    def __init__(self, status: int, headers: list[Header], connection: UpstreamConnection) -> None:
        self.status = status
        self.headers = headers
        self._connection = connection

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, by its name in lower case."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def set_idle_timeout(self, idle_s: float | None) -> None:
        """Another bound of the silence between two pieces, from now on."""
        self._connection.set_idle_timeout(idle_s)

    async def pump(self, receive: Callable[[bytes], None], flow: Flow | None = None) -> None:
        """Hands every piece of the body to `receive` as it comes, until it is complete: no task wakes per piece.

        Args:
            receive: called from the event loop; what it raises ends the pump and is raised here.
            flow: who is behind `receive`; while it is slow, the engine's connection is left unread.

        Raises:
            UpstreamTimeout: nothing came for `idle_s`.
            UpstreamBroken: the connection ended before the body did.
        """
        await self._connection.pump(receive, flow)

    async def body(self) -> AsyncIterator[bytes]:
        """The pieces of the body, as they came; reading ahead is bounded. Raises as `pump`."""
        while piece := await self._connection.next_piece():
            yield piece

    async def read(self, max_bytes: int = 64 << 20) -> bytes:
        """The whole body.

        Raises:
            UpstreamBroken: as `pump`, or the body has more than `max_bytes`.
            UpstreamTimeout: as `pump`.
        """
        pieces: list[bytes] = []
        num_bytes = 0
        while piece := await self._connection.next_piece():
            pieces.append(piece)
            num_bytes += len(piece)
            if num_bytes > max_bytes:
                raise self._connection.broken(f"answered with a body of more than {max_bytes} bytes")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class Asking:
    """`async with` of one request; on the way out an answer that is not complete is cut, so the engine sees it."""

    __slots__ = ("_pool", "_head", "_body", "_is_head", "_timeouts", "_connection")

    def __init__(
        self, pool: ConnectionPool, head: bytes, body: bytes, is_head: bool, timeouts: Timeouts
    ) -> None:
        self._pool = pool
        self._head = head
        self._body = body
        self._is_head = is_head
        self._timeouts = timeouts
        self._connection: UpstreamConnection | None = None

    async def __aenter__(self) -> Answer:
        timeouts = self._timeouts
        connection = self._pool.take_idle()
        if connection is None:
            connection = await self._pool.open(timeouts.connect_s)
        self._connection = connection
        try:
            connection.send(self._head, self._body, self._is_head, timeouts.first_byte_s, timeouts.idle_s)
            status, headers = await connection.wait_for_head()
        except BaseException:
            self._pool.give_back(connection)
            raise
        return Answer(status, without_hop_by_hop(headers), connection)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._pool.give_back(self._connection)


class Upstream:
    """Requests to any endpoint. Nothing is sent twice: another try is the relay's decision.

    Args:
        max_connections: bound of open connections for each endpoint; a request beyond it waits for one.
        keepalive_s: how long an unused connection is kept.
        tls: how engines behind https are verified; the system's authorities if none is given.
    """

    def __init__(
        self, max_connections: int = 4096, keepalive_s: float = 30.0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._max_connections = max_connections
        self._keepalive_s = keepalive_s
        self._tls = tls
        self._pools: dict[Endpoint, ConnectionPool] = {}

    def request(
        self,
        endpoint: Endpoint,
        method: str,
        target: str,
        headers: Sequence[Header] = (),
        body: bytes = b"",
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> Asking:
        """One request, as `async with upstream.request(...) as answer`.

        `target` is the path with the query; the endpoint's base path is put before it. `headers` may be those of
        the client as they are: hop-by-hop ones, host and content-length are left out or replaced.

        Raises:
            UpstreamUnreachable: on entering: no connection could be opened.
            UpstreamTimeout: on entering: no connection or no answer in time.
            UpstreamBroken: on entering: the connection ended before the answer's head was there.
        """
        pool = self._pools.get(endpoint) or self._add(endpoint)
        head = request_head(method, endpoint.base_path + target, pool.host_header, headers, len(body))
        return Asking(pool, head, body, method == "HEAD", timeouts)

    def _add(self, endpoint: Endpoint) -> ConnectionPool:
        tls = (self._tls or ssl.create_default_context()) if endpoint.is_tls else None
        pool = ConnectionPool(
            endpoint, asyncio.get_running_loop(), tls, self._max_connections, self._keepalive_s
        )
        self._pools[endpoint] = pool
        return pool

    def num_connections(self, endpoint: Endpoint) -> int:
        """Open connections, in use or not."""
        pool = self._pools.get(endpoint)
        return pool.num_open if pool else 0

    def forget(self, endpoint: Endpoint) -> None:
        """The endpoint was removed: unused connections close now, those in use when they are done."""
        pool = self._pools.pop(endpoint, None)
        if pool is not None:
            pool.close()

    def close(self) -> None:
        """Forgets every endpoint."""
        for endpoint in list(self._pools):
            self.forget(endpoint)
