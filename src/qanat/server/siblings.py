"""What one server process has to ask of all: counts, health, and who runs a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from qanat.engine.async_engine import AsyncEngine
from qanat.engine.core_line import EngineHealth
from qanat.engine.metrics import EngineStats
from qanat.server.desk import Desk
from qanat.server.recent import RecentRequests, RequestRecord
from qanat.server.running import RunningRequests


class Siblings(Protocol):
    """All processes that serve the address, this one included."""

    async def stats(self) -> EngineStats:
        """Their counts, added up."""
        ...

    async def health(self) -> EngineHealth:
        """Whether the work of each makes progress."""
        ...

    async def abort(self, request_id: str) -> int:
        """Ends what runs under this id, wherever; returns how many prompts that were.

        Raises:
            UnavailableError: none is known, but a process that may run it did not answer; it ends it when it does.
        """
        ...

    async def requests(self) -> list[RequestRecord]:
        """What requests took lately; see `qanat.server.recent`."""
        ...


class Alone:
    """A server that is one process; also the own part of one that is several.

    Args:
        engine: generates.
        running: which generations run for which request id.
        recent: what requests took lately.
    """

    def __init__(self, engine: AsyncEngine, running: RunningRequests, recent: RecentRequests) -> None:
        self._engine = engine
        self._running = running
        self._recent = recent

    async def stats(self) -> EngineStats:
        """See `Siblings`."""
        return self._engine.stats()

    async def health(self) -> EngineHealth:
        """See `Siblings`."""
        return self._engine.health()

    async def abort(self, request_id: str) -> int:
        """See `Siblings`."""
        return sum([await self._engine.abort(engine_id) for engine_id in self._running.find(request_id)])

    async def requests(self) -> list[RequestRecord]:
        """See `Siblings`."""
        return self._recent.records()


@dataclass(frozen=True)
class Company:
    """What a server process shares with others.

    Attributes:
        desk: lets requests in for all of them.
        siblings: all of them, from this one's own part.
    """

    desk: Desk
    siblings: Callable[[Alone], Siblings]
