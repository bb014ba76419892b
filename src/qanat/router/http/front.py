"""The server that clients connect to: it listens, counts what runs, and drains."""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Coroutine
from typing import Any

from qanat.core.errors import ConfigError
from qanat.router.http.exchange import Handler
from qanat.router.http.front_connection import FrontConnection
from qanat.router.http.limits import FrontLimits
from qanat.router.http.request_reader import HeadCheck

_LOG = logging.getLogger(__name__)
_BACKLOG = 2048


class Front:
    """An HTTP/1.1 server; every request becomes a task of `handler`, cancelled when its client goes away.

    Args:
        handler: of every request.
        limits: for clients.
        check: raises a QanatError if a request may not be made; asked by its head before a long body is read, so that
            only who may ask fills this process's memory. The handler checks again.
    """

    def __init__(
        self, handler: Handler, limits: FrontLimits | None = None, check: HeadCheck | None = None
    ) -> None:
        self.handler = handler
        self.check = check
        self.limits = limits or FrontLimits()
        self.connections: set[FrontConnection] = set()
        self.is_draining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._id_prefix = secrets.token_hex(4)
        self._num_calls = 0
        self._is_quiet = asyncio.Event()

    @property
    def num_running(self) -> int:
        """Calls whose handler has not returned."""
        return len(self._tasks)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Accepts connections from now on; gives the port, which the system chooses if 0 was asked for.

        Raises:
            ConfigError: the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: FrontConnection(self, loop), host, port, ssl=tls, backlog=_BACKLOG
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host} port {port}: {error.strerror or error}; choose another --host or --port"
            ) from None
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def close(self, limit_s: float = 30.0) -> int:
        """Stops accepting, lets running calls finish, cuts those that run after `limit_s`; gives their number."""
        self.is_draining = True
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.drain()
        num_cut = 0
        try:
            await asyncio.wait_for(self._quiet(), limit_s)
        except TimeoutError:
            num_cut = len(self._tasks)
            for task in list(self._tasks):
                task.cancel()
        for connection in list(self.connections):
            connection.cut()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=1.0)
        self._servers.clear()
        return num_cut

    async def _quiet(self) -> None:
        while self._tasks or self.connections:
            self._is_quiet.clear()
            await self._is_quiet.wait()

    def next_id(self) -> str:
        """An id for a call, unique in this process and most likely elsewhere too."""
        self._num_calls += 1
        return f"{self._id_prefix}-{self._num_calls:x}"

    def run(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts the task of a call and counts it until its end, which may come before its first line has run."""
        task = loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._check_quiet()

    @property
    def num_connections(self) -> int:
        """Connections that are open."""
        return len(self.connections)

    def opened(self, connection: FrontConnection) -> None:
        """A client has connected."""
        self.connections.add(connection)

    def lost(self, connection: FrontConnection) -> None:
        """A connection is closed."""
        self.connections.discard(connection)
        self._check_quiet()

    def _check_quiet(self) -> None:
        if self.is_draining and not self._tasks and not self.connections:
            self._is_quiet.set()
