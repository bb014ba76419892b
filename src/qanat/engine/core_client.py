"""What the front end needs of its end of the line to an engine core, wherever that core runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from qanat.config.resolved import ResolvedConfig
from qanat.engine.messages import FromCore, Ready, ToCore


class CoreClient(Protocol):
    """The line to one life of one core; the next life gets a client of its own.

    Attributes:
        start_s: seconds that the core's start took; 0 before.
    """

    start_s: float

    @property
    def pid(self) -> int | None:
        """Process id of the core on its host; None before the start."""
        ...

    async def start(self, config: ResolvedConfig) -> Ready:
        """Starts the core, or waits for the one that somebody else starts, until it serves.

        Raises:
            QanatError: of the kind that the core met, with its message.
            EngineDeadError: it died, or did not answer in time.
        """
        ...

    async def send(self, message: ToCore) -> None:
        """Queues a message for the core; never blocks.

        Raises:
            EngineDeadError: it has hung up.
        """
        ...

    async def receive(self) -> FromCore:
        """The next message; one that is already there comes at once, without a turn of the event loop.

        Raises:
            EngineDeadError: the core is gone and nothing more can come.
        """
        ...

    async def ask_for_stacks(self) -> str:
        """Where all threads of the core are now, or why it does not say; works also while it is stuck."""
        ...

    def last_words(self) -> str:
        """What a core that has died left behind, on lines of its own; "" if nothing. To be asked before `stop`."""
        ...

    async def stop(self) -> None:
        """Ends the line, and the core if this client started it. Safe to call twice."""
        ...


ClientFactory = Callable[[], CoreClient]
"""Makes the client for a replica's next core.

Raises:
    OSError: the system has no room, files or processes left.
"""
