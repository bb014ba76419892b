"""One replica as the front end sees it: its core over all lives, what it has to do, and what it has done."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import EngineDeadError, QanatError
from qanat.core.outputs import RequestOutput
from qanat.core.request import Request
from qanat.engine.balancer import Load
from qanat.engine.core_client import ClientFactory, CoreClient
from qanat.engine.core_line import CoreLine, EngineHealth, Listener
from qanat.engine.messages import AbortRequest, AddRequests, Ready, StepDone, UseVocabulary
from qanat.engine.metrics import EngineMetrics, EngineStats
from qanat.engine.process_client import ProcessClient
from qanat.engine.restarts import RestartBudget
from qanat.scheduler.stats import SchedulerStats

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Seat:
    """Where a replica's cores come from.

    Attributes:
        rank: its number.
        make_client: makes the client to each of its cores.
        restarts: how often a core that dies is replaced.
    """

    rank: int = 0
    make_client: ClientFactory = ProcessClient
    restarts: RestartBudget = field(default_factory=RestartBudget)


@dataclass(frozen=True)
class Started:
    """A replica whose first core serves, or has died by the time that this process hears of it.

    Attributes:
        seat: where its next cores come from.
        client: to the first core.
        ready: what that said of its start.
        death: why it does not serve; None if it does.
    """

    seat: Seat
    client: CoreClient
    ready: Ready
    death: EngineDeadError | None = None


Beginning = Callable[[Sequence[Seat], ResolvedConfig], Awaitable[list[Started]]]
"""Has the first core of each seat serve; raises what `start_replicas` does."""


async def start_replicas(seats: Sequence[Seat], config: ResolvedConfig) -> list[Started]:
    """Starts all of them at once, and waits until all serve; if one cannot, none is left.

    Raises:
        QanatError: of the first one that failed.
    """
    clients: list[CoreClient] = []
    starts: list[asyncio.Task[Ready]] = []
    try:
        for seat in seats:
            clients.append(seat.make_client())
            starts.append(asyncio.create_task(clients[-1].start(config.of_replica(seat.rank))))
        ready = await asyncio.gather(*starts)
    except BaseException:
        for start in starts:
            start.cancel()
        await asyncio.gather(*starts, return_exceptions=True)
        await asyncio.gather(*(client.stop() for client in clients))
        raise
    return [Started(*parts) for parts in zip(seats, clients, ready, strict=True)]


@dataclass(frozen=True)
class Reader:
    """Who is told of a replica's news.

    Attributes:
        on_output: news of a request.
        on_death: nothing more comes of what it was asked for, for this reason.
        on_replaced: a new core serves.
        vocabulary: what each core is to have, packed.
    """

    on_output: Callable[[Replica, RequestOutput], Awaitable[None]]
    on_death: Callable[[Replica, QanatError], None]
    on_replaced: Callable[[Replica], None]
    vocabulary: Callable[[], bytes]


class Replica:
    """A replica that serves.

    Args:
        started: with its first core.
        reader: is told the news.
        is_named: messages say which replica, as there are others.

    Attributes:
        rank: its number.
        config: what its core runs with.
        memory_plan: what its core allocated.
        op_table: kernel providers, one line per op.
        line: to its core.
        load: outstanding tokens.
        metrics: counts of its requests.
    """

    def __init__(self, started: Started, reader: Reader, *, is_named: bool) -> None:
        seat = started.seat
        self.rank = seat.rank
        self.load = Load()
        self.metrics = EngineMetrics()
        self._reader = reader
        self._is_named = is_named
        self._pending: set[str] = set()  # what the core has not reported as ended
        self._scheduler_stats: SchedulerStats | None = None
        self._is_vocabulary_sent = False
        self._take_ready(started.ready)
        self.line = CoreLine(
            started.client,
            self.config,
            seat.restarts,
            Listener(self._on_step, self._on_death, self._on_replaced),
            make_client=seat.make_client,
            name=f"Replica {seat.rank}" if is_named else "",
            death=started.death,
        )

    def log_start(self) -> None:
        """Says, where there are several, which process it is."""
        if self._is_named and self.is_up:
            logger.info("Replica %d serves, as process %s.", self.rank, self.line.pid)

    @property
    def is_up(self) -> bool:
        """True if requests can be sent."""
        return self.line.death is None

    def health(self) -> EngineHealth:
        """See `EngineHealth`; costs nothing."""
        return self.line.health(len(self._pending))

    def stats(self) -> EngineStats:
        """Counters, gauges and histograms since the start."""
        return self.metrics.snapshot(self._scheduler_stats, num_restarts=self.line.num_restarts)

    async def submit(self, requests: Sequence[Request]) -> None:
        """Sends the choices of one call.

        Raises:
            EngineDeadError: the core has hung up.
        """
        await self.send_vocabulary()
        for request in requests:
            self._pending.add(request.request_id)
            self.load.add(request.request_id, request.num_prompt_tokens + request.num_output_tokens)
            self.metrics.on_admitted(request)
        await self.line.send(AddRequests.of(requests))

    async def abort(self, request_id: str) -> None:
        """Ends a request at the core's next step; nothing happens if the core is gone."""
        with contextlib.suppress(EngineDeadError):
            await self.line.send(AbortRequest(request_id))

    def leave(self, request_id: str) -> None:
        """Nobody waits for this request any more."""
        self._pending.discard(request_id)
        self.load.end(request_id)

    async def send_vocabulary(self) -> None:
        """Once in the life of each core, before its first request."""
        if not self._is_vocabulary_sent:
            self._is_vocabulary_sent = True
            with contextlib.suppress(EngineDeadError):  # the next core gets it too
                await self.line.send(UseVocabulary(self._reader.vocabulary()))

    async def close(self) -> None:
        """Ends its requests and its core. Safe to call twice."""
        self.line.fail(EngineDeadError("The engine is shutting down."))
        await self.line.close()

    def _take_ready(self, ready: Ready) -> None:
        self.config, self.memory_plan, self.op_table = ready.config, ready.memory_plan, ready.op_table
        self._is_vocabulary_sent = False

    async def _on_step(self, step: StepDone) -> None:
        self._scheduler_stats = step.stats
        self.load.hear(step.stats)
        self.metrics.on_step(step.outputs, time.monotonic())
        for output in step.outputs:
            if output.finish_reason is not None:
                self.leave(output.request_id)
            elif output.new_token_ids:
                self.load.begin(output.request_id)
            await self._reader.on_output(self, output)

    def _on_death(self, error: QanatError) -> None:
        self._pending.clear()
        self.load.clear()
        self._scheduler_stats = None
        self._reader.on_death(self, error)
        self.metrics.on_death()

    def _on_replaced(self, ready: Ready) -> None:
        self._take_ready(ready)
        self._reader.on_replaced(self)
