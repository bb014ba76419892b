"""In the parent: the cores that all front ends use. They are started and replaced here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from qanat.config.resolved import ResolvedConfig
from qanat.core.decision import Decision
from qanat.core.errors import EngineDeadError, QanatError
from qanat.engine.core_line import CoreLine, Listener
from qanat.engine.messages import CloseFrontEnd, OpenFrontEnd, Ready, StepDone
from qanat.engine.process_client import ProcessClient
from qanat.engine.restarts import RestartBudget
from qanat.server.front_ends.words import ReplicaDown, ReplicaUp

log = logging.getLogger(__name__)

News = ReplicaUp | ReplicaDown


class Keeper:
    """Owns one core for each replica of this host.

    Args:
        config: what cores are started with.
        max_restarts: of each core, see `RestartBudget`.
        tell: says something to all front ends.

    Attributes:
        gone: set once every core is dead for good.
        decisions: what the start decided.
    """

    def __init__(self, config: ResolvedConfig, max_restarts: int, tell: Callable[[News], None]) -> None:
        self._config = config
        ranks = config.parallel.local_ranks
        self._replicas = [
            _Replica(rank, f"Replica {rank}" if len(ranks) > 1 else "", max_restarts, self._hear)
            for rank in ranks
        ]
        self._tell = tell
        self._numbers: set[int] = set()
        self.gone = asyncio.Event()
        self.decisions: list[Decision] = []

    async def start(self) -> None:
        """Starts all cores and waits until they serve.

        Raises:
            QanatError: as the core that failed has it.
        """
        starts = [asyncio.create_task(replica.start(self._config)) for replica in self._replicas]
        try:
            self.decisions = (await asyncio.gather(*starts))[0].decisions
        finally:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)

    def open(self, number: int) -> list[News]:
        """Tells all cores of a front end; returns what that one has to know of them."""
        self._numbers.add(number)
        for replica in self._replicas:
            replica.send(OpenFrontEnd(number))
        return [replica.news for replica in self._replicas if replica.news is not None]

    def close(self, number: int) -> None:
        """Tells all cores that a front end is gone."""
        self._numbers.discard(number)
        for replica in self._replicas:
            replica.send(CloseFrontEnd(number))

    async def stop(self) -> None:
        """Ends all cores."""
        await asyncio.gather(*(replica.stop() for replica in self._replicas))

    def _hear(self, replica: _Replica, news: News) -> None:
        if isinstance(news, ReplicaUp):  # a new core, which knows nobody yet
            for number in self._numbers:
                replica.send(OpenFrontEnd(number))
        self._tell(news)
        if all(one.is_gone for one in self._replicas):
            self.gone.set()


@dataclass
class _ToldBudget(RestartBudget):
    """Says what it allows."""

    said: Callable[[float | None], None] = lambda _: None

    def next_delay_s(self) -> float | None:
        """See `RestartBudget`."""
        delay_s = super().next_delay_s()
        self.said(delay_s)
        return delay_s


class _Replica:
    """One core over its lives.

    Args:
        rank: of the replica.
        name: in the log; "" for the only one.
        max_restarts: see `RestartBudget`.
        hear: told when a core comes or goes.

    Attributes:
        news: what a front end has to know now; None while the first core is being started.
    """

    def __init__(
        self, rank: int, name: str, max_restarts: int, hear: Callable[[_Replica, News], None]
    ) -> None:
        self._rank = rank
        self._name = name
        self._hear = hear
        self._client: ProcessClient | None = None
        self._line: CoreLine | None = None
        self._budget = _ToldBudget(max_restarts, said=self._on_verdict)
        self._reason = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self.news: News | None = None

    @property
    def is_gone(self) -> bool:
        """True once there will be no core any more."""
        return isinstance(self.news, ReplicaDown) and self.news.retry_in_s is None

    async def start(self, config: ResolvedConfig) -> Ready:
        """Starts the first core."""
        client = self._new_client()
        try:
            ready = await client.start(config.of_replica(self._rank))
        except BaseException:
            await client.stop()
            raise
        listener = Listener(_ignore, self._on_death, lambda _: self._on_up())
        self._line = CoreLine(
            client,
            config.of_replica(self._rank),
            self._budget,
            listener,
            make_client=self._new_client,
            name=self._name,
        )
        self._on_up()
        return ready

    def send(self, word: OpenFrontEnd | CloseFrontEnd) -> None:
        """Queues a word for the core, if there is one that serves."""
        if isinstance(self.news, ReplicaUp):
            task = asyncio.create_task(self._send(word))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Ends the core."""
        if self._line is not None:
            await self._line.close()

    async def _send(self, word: OpenFrontEnd | CloseFrontEnd) -> None:
        assert self._line is not None
        with contextlib.suppress(EngineDeadError):  # its successor will be told
            await self._line.send(word)

    def _new_client(self) -> ProcessClient:
        self._client = ProcessClient()
        return self._client

    def _on_up(self) -> None:
        assert self._client is not None
        client, num_restarts = self._client, self._budget.num_restarts
        self.news = ReplicaUp(self._rank, str(client.folder), client.pid, client.start_s, num_restarts)
        self._hear(self, self.news)

    def _on_death(self, error: QanatError) -> None:
        self._reason = error.message

    def _on_verdict(self, retry_in_s: float | None) -> None:
        self.news = ReplicaDown(self._rank, self._reason, retry_in_s, self._budget.num_restarts)
        self._hear(self, self.news)


async def _ignore(_: StepDone) -> None:
    """The parent has no requests."""
