"""The line to an engine core on another host."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque

import msgspec

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import EngineDeadError, QanatError, error_of
from qanat.engine.last_words import STACKS_TIMEOUT_S
from qanat.engine.messages import FromCore, Ready, ToCore
from qanat.engine.remote.hosts import Host, RemoteHosts
from qanat.engine.remote.messages import (
    AskForStacks,
    CoreDown,
    CoreSaid,
    CoreUp,
    ForCore,
    Stacks,
    StartCore,
    StopCore,
)

ROAD_S = 2.0
"""How much longer than on this host an answer may take."""


class RemoteClient:
    """A `CoreClient` whose core another host starts, feeds and ends.

    Args:
        hosts: the head's end of the lines.
        replica: data-parallel rank of the core.
        join_timeout_s: its host must take part within this; None waits as long as it takes.

    Attributes:
        start_s: seconds that the core's start has taken there; 0 before.
    """

    def __init__(self, hosts: RemoteHosts, replica: int, join_timeout_s: float | None) -> None:
        self._hosts = hosts
        self._replica = replica
        self._join_timeout_s = join_timeout_s
        self._host: Host | None = None
        self._life = 0
        self._up: CoreUp | None = None
        self._death: QanatError | None = None
        self._last_words = ""
        self._messages: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._stacks: asyncio.Future[str] | None = None
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(FromCore)
        self.start_s = 0.0

    @property
    def pid(self) -> int | None:
        """Process id of the core, on its host; None before the start."""
        return self._up.pid if self._up else None

    async def start(self, config: ResolvedConfig) -> Ready:
        """Has the replica's host start a core, and waits until it serves.

        Args:
            config: the head's. The host has its own, which may differ from it in nothing that decides about answers.

        Returns:
            What the core says, with this host's paths.

        Raises:
            QanatError: of the kind that the core met, with its message.
            EngineDeadError: the host did not come, or the core died or did not answer within `config.init_timeout_s`.
        """
        self._host = await self._hosts.host_of(self._replica, self._join_timeout_s)
        try:
            async with asyncio.timeout(config.init_timeout_s):
                self._life = self._hosts.new_life(self._host, self)
                await self._hosts.send(self._host, StartCore(self._replica, self._life))
                ready = await self.receive()
        except TimeoutError:
            raise EngineDeadError(
                f"Replica {self._replica} was not ready within {config.init_timeout_s:.0f} s (--init-timeout-s)."
            ) from None
        except QanatError as error:
            raise error_of(error.code, f"Replica {self._replica}: {error.message}") from None
        assert isinstance(ready, Ready)
        fitted = dataclasses.replace(config, scheduler=ready.config.scheduler)
        return msgspec.structs.replace(ready, config=fitted)

    async def send(self, message: ToCore) -> None:
        """Queues a message for the core.

        Raises:
            EngineDeadError: it, or its host, is gone.
        """
        if self._death is not None or self._host is None:
            raise EngineDeadError("The engine process has ended; the server's log has the reason.")
        await self._hosts.send(self._host, ForCore(self._life), self._encoder.encode(message))

    async def receive(self) -> FromCore:
        """The next message; one that is already there comes at once, without a turn of the event loop.

        Raises:
            EngineDeadError: the core, or its host, is gone, and nothing more can come.
        """
        while not self._messages:
            if self._death is not None:
                raise self._death.with_traceback(None)
            self._news.clear()
            await self._news.wait()
        return self._decoder.decode(self._messages.popleft())

    async def ask_for_stacks(self) -> str:
        """Where all threads of the core are now, or why that is not known."""
        if self._death is not None or self._host is None:
            return "(no process)"
        self._stacks = asyncio.get_running_loop().create_future()
        await self._hosts.send(self._host, AskForStacks(self._life))
        limit_s = STACKS_TIMEOUT_S + ROAD_S
        done, _ = await asyncio.wait({self._stacks}, timeout=limit_s)
        return (
            self._stacks.result()
            if done
            else f"(no stacks from {self._host.report.name} within {limit_s:.0f} s)"
        )

    def last_words(self) -> str:
        """What a core that has died left behind on its host, on lines of its own; "" if nothing."""
        return f"\n{self._last_words}" if self._last_words else ""

    async def stop(self) -> None:
        """Has its host end the core. Safe to call twice."""
        if self._host is not None and self._host.listeners.pop(self._life, None) is not None:
            await self._hosts.send(self._host, StopCore(self._life))
        self._end(EngineDeadError("The engine process was stopped."))

    def hear(self, message: CoreUp | CoreSaid | CoreDown | Stacks, payload: bytes) -> None:
        """The host says something about the core."""
        if isinstance(message, CoreDown):
            self._last_words = message.last_words
            self._end(error_of(message.code, f"At {self._host_name}: {message.message}"))
        elif isinstance(message, Stacks):
            if self._stacks is not None and not self._stacks.done():
                self._stacks.set_result(message.text)
        else:
            if isinstance(message, CoreUp):
                self._up, self.start_s = message, message.start_s
            self._messages.append(payload)
            self._news.set()

    def lose_host(self, reason: str) -> None:
        """The host is gone, and so is the core."""
        self._end(EngineDeadError(f"Its host, {self._host_name}, {reason}."))

    @property
    def _host_name(self) -> str:
        return self._host.report.name if self._host else "not yet known"

    def _end(self, error: QanatError) -> None:
        self._death = self._death or error
        if self._stacks is not None and not self._stacks.done():
            self._stacks.set_result(f"(no stacks: {error.message})")
        self._news.set()
