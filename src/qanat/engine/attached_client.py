"""The line from a front end to a core that another process has started: what that one says of it, and the sockets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import EngineDeadError
from qanat.engine.inbox import next_message
from qanat.engine.last_words import ask_for_stacks
from qanat.engine.messages import (
    SHARED_SOCKET,
    AddRequests,
    FromCore,
    Ready,
    ResetPrefixes,
    StartProfile,
    StopProfile,
    ToCore,
    front_end_socket,
)


@dataclass(frozen=True)
class CoreLife:
    """One core process from its start to its end.

    Attributes:
        folder: of its sockets.
        pid: of the process.
        start_s: seconds that its start took.
        end: gets the reason when it has died.
    """

    folder: Path
    pid: int | None
    start_s: float
    end: asyncio.Future[str]


class CoreNews:
    """What the process that owns a core has said about it.

    Attributes:
        retry_in_s: seconds from its death until the next start; None if there will be none. Only for a dead one.
        num_restarts: starts after a death, so far.
    """

    def __init__(self) -> None:
        self._life: CoreLife | None = None
        self._reason = ""
        self._is_known = False
        self._changed = asyncio.Event()
        self.retry_in_s: float | None = 0.0
        self.num_restarts = 0

    @property
    def death(self) -> EngineDeadError | None:
        """Why there is none now; None if one lives."""
        return EngineDeadError(self._reason) if self._life is None else None

    def on_up(self, folder: str, pid: int | None, start_s: float) -> None:
        """A core serves."""
        self._is_known = True
        self._life = CoreLife(Path(folder), pid, start_s, asyncio.get_running_loop().create_future())
        self._changed.set()

    def on_down(self, reason: str, retry_in_s: float | None) -> None:
        """The core has died, or could not be started."""
        self._is_known = True
        self._reason, self.retry_in_s = reason, retry_in_s
        if self._life is not None:
            self._life.end.set_result(reason)
            self._life = None
        self._changed.set()

    async def first(self) -> None:
        """Returns once anything has been said: the first core serves, or has died since."""
        while not self._is_known:
            self._changed.clear()
            await self._changed.wait()

    async def life(self) -> CoreLife:
        """The core that lives, once one does.

        Raises:
            EngineDeadError: there will be none.
        """
        while self._life is None:
            if self.retry_in_s is None:
                raise EngineDeadError(self._reason)
            self._changed.clear()
            await self._changed.wait()
        return self._life


class AttachedClient:
    """A `CoreClient` that neither starts nor ends the core.

    Args:
        front_end: number of this process at the core, which has been told of it.
        news: of the core.

    Attributes:
        start_s: seconds that the core's start took; 0 before `start`.
    """

    def __init__(self, front_end: int, news: CoreNews) -> None:
        self._front_end = front_end
        self._news = news
        self._life: CoreLife | None = None
        self._context = zmq.asyncio.Context()
        self._outbox = self._socket(zmq.PUSH)
        self._inbox = self._socket(zmq.PULL)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(FromCore)
        self.start_s = 0.0

    @property
    def pid(self) -> int | None:
        """Process id of the core, None before `start`."""
        return self._life.pid if self._life else None

    async def start(self, config: ResolvedConfig) -> Ready:
        """Waits until there is a core, however long that takes, and until it knows of this front end.

        Args:
            config: not sent: the core has it from its owner.

        Raises:
            EngineDeadError: there will be none, or it died meanwhile.
        """
        self._life = await self._news.life()
        self.start_s = self._life.start_s
        self._inbox.bind(f"ipc://{self._life.folder / front_end_socket(self._front_end)}")
        self._outbox.connect(f"ipc://{self._life.folder / SHARED_SOCKET}")
        ready = await self.receive()
        assert isinstance(ready, Ready)
        return ready

    async def send(self, message: ToCore) -> None:
        """Queues a message for the core.

        Raises:
            EngineDeadError: it is known to have died, or this end has been closed.
        """
        if self._life is None or self._life.end.done():
            raise EngineDeadError("The engine process has ended; the server's log has the reason.")
        if isinstance(message, AddRequests | StartProfile | StopProfile | ResetPrefixes):
            message = msgspec.structs.replace(message, front_end=self._front_end)
        try:
            await self._outbox.send(self._encoder.encode(message), flags=zmq.NOBLOCK)
        except zmq.ZMQError:
            raise EngineDeadError("The line to the engine process has been closed.") from None

    async def receive(self) -> FromCore:
        """The next message; one that is already there comes at once, without a turn of the event loop.

        Raises:
            EngineDeadError: the core died and nothing more can come.
        """
        assert self._life is not None
        message = await next_message(self._inbox, self._life.end)
        if message is None:
            raise EngineDeadError(self._life.end.result())
        return self._decoder.decode(message)

    async def ask_for_stacks(self) -> str:
        """Where all threads of the core are now, or why it does not say; works also while it is stuck."""
        if self._life is None or self._life.pid is None:
            return "(no process)"
        return await ask_for_stacks(self._life.folder, self._life.pid)

    def last_words(self) -> str:
        """Nothing: the core's owner logs them."""
        return ""

    async def stop(self) -> None:
        """Closes the sockets; the core goes on. Safe to call twice."""
        self._context.destroy(linger=0)

    def _socket(self, kind: int) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.set_hwm(0)
        return socket
