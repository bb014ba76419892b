"""The parent of several front ends: it owns the address, the cores and what all front ends share."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Sequence

from qanat.config.prepare import Prepared
from qanat.core.decision import Decision
from qanat.core.errors import EngineDeadError
from qanat.engine.tokenizer import load_tokenizer
from qanat.server.errors import UnavailableError
from qanat.server.front_ends.crew import Crew, FrontEnd
from qanat.server.front_ends.desk_host import DeskHost
from qanat.server.front_ends.keeper import Keeper, News
from qanat.server.front_ends.line import Reply
from qanat.server.front_ends.together import added_stats
from qanat.server.front_ends.words import (
    AbortAnswer,
    AbortQuestion,
    Answer,
    Gathered,
    HealthAnswer,
    HealthQuestion,
    Question,
    RequestsAnswer,
    RequestsQuestion,
    StatsAnswer,
    StatsQuestion,
    Word,
)
from qanat.server.hosting import DEATH_NOTICE_S, FAREWELL_S
from qanat.server.sampling_defaults import read_sampling_defaults

log = logging.getLogger(__name__)

GATHER_S = 1.0
"""How long a front end may take to answer another one's question; of who is stuck, its last counts are taken."""
HEALTH_S = 0.3
"""The same for its health: probes wait a second by default."""
EXIT_MARGIN_S = 10.0
"""Beyond the time that a front end gives itself to end."""


class Supervisor:
    """Runs until a signal comes or the engine is dead for good.

    Args:
        prepared: every setting.
        sock: bound to the server's address.
    """

    def __init__(self, prepared: Prepared, sock: socket.socket) -> None:
        self._prepared = prepared
        self._sock = sock
        self._desk = DeskHost()
        self._retired: StatsAnswer | None = None
        self._signalled = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, say_ready: Callable[[Sequence[Decision]], None]) -> int:
        """Serves.

        Args:
            say_ready: called with all decisions once every front end serves.

        Returns:
            The exit code: 0 after a signal, 1 if the engine died or a front end could not start.

        Raises:
            QanatError: the engine cannot start.
        """
        options = self._prepared.wishes
        _, decisions = read_sampling_defaults(
            options.generation_config, options.override_generation_config, self._prepared.config.model_path
        )
        config = (await asyncio.to_thread(load_tokenizer, self._prepared.config))[1]
        max_restarts = options.max_engine_restarts if options.restart_engine else 0
        self._keeper = Keeper(config, max_restarts, self._tell_all)
        self._crew = Crew(
            self._prepared,
            self._sock,
            on_start=self._on_start,
            on_end=self._on_end,
            take=self._take,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        self._crew.start(self._prepared.config.parallel.num_front_ends)
        try:
            await self._until_serving()
            if not self._signalled.is_set():
                say_ready([*self._prepared.decisions, *decisions, *self._keeper.decisions])
                await _any_of(self._signalled, self._keeper.gone)
            return await self._until_ended()
        finally:
            self._crew.signal(signal.SIGTERM)
            await self._crew.join(EXIT_MARGIN_S)
            await self._keeper.stop()

    async def _until_serving(self) -> None:
        starting = asyncio.create_task(self._keeper.start())
        crew = self._crew
        watching = asyncio.create_task(_any_of(self._signalled, crew.failed))
        try:
            await asyncio.wait({starting, watching}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await _any_of(self._signalled, crew.failed, crew.all_serving, self._keeper.gone)
            if crew.failed.is_set() and not self._signalled.is_set():
                raise EngineDeadError("A server process could not start; the log above has the reason.")
        finally:
            starting.cancel()
            watching.cancel()
            await asyncio.gather(starting, watching, return_exceptions=True)

    async def _until_ended(self) -> int:
        """Lets the front ends end by themselves: they have had the signal, or know that the engine is dead."""
        if self._signalled.is_set():
            timeout_s = self._prepared.wishes.shutdown_timeout + FAREWELL_S + EXIT_MARGIN_S
            await self._crew.join(timeout_s)
            return 0
        await self._crew.join(DEATH_NOTICE_S + FAREWELL_S + EXIT_MARGIN_S)
        return 1

    def _on_signal(self) -> None:
        self._crew.signal(signal.SIGTERM)
        self._signalled.set()

    def _on_start(self, front_end: FrontEnd) -> list[News]:
        return self._keeper.open(front_end.number)

    def _on_end(self, front_end: FrontEnd) -> None:
        self._keeper.close(front_end.number)
        self._desk.forget(front_end.number)
        if front_end.stats is not None:
            earlier = [] if self._retired is None else [self._retired.stats]
            self._retired = StatsAnswer(added_stats(front_end.stats, earlier), is_current=False)

    def _tell_all(self, news: News) -> None:
        for front_end in self._crew.front_ends.values():
            front_end.line.tell(news)

    def _take(self, front_end: FrontEnd, word: Word, reply: Reply) -> None:
        if isinstance(word, Question):
            if isinstance(word, StatsQuestion):
                front_end.stats = word.own
            task = asyncio.create_task(self._gather(front_end, word, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._desk.take(front_end.number, word, reply)

    async def _gather(self, asker: FrontEnd, question: Question, reply: Reply) -> None:
        others = [one for one in self._crew.front_ends.values() if one is not asker and one.is_serving]
        said = await asyncio.gather(*(answer_of(one, question) for one in others))
        answers = [answer for answer in said if answer is not None]
        if isinstance(question, StatsQuestion) and self._retired is not None:
            answers.append(self._retired)
        reply(Gathered(answers, said.count(None)))


async def answer_of(front_end: FrontEnd, question: Question) -> Answer | None:
    """What a front end says; if it is stuck, the counts that it told last. None if there is nothing."""
    line = front_end.line
    try:
        async with asyncio.timeout(HEALTH_S if isinstance(question, HealthQuestion) else GATHER_S):
            if isinstance(question, HealthQuestion):
                return await line.ask(question, HealthAnswer)
            if isinstance(question, AbortQuestion):
                return await line.ask(question, AbortAnswer)
            if isinstance(question, RequestsQuestion):
                return await line.ask(question, RequestsAnswer)
            answer = await line.ask(StatsQuestion(), StatsAnswer)
            front_end.stats = answer.stats
            return answer
    except (UnavailableError, TimeoutError):
        if not isinstance(question, StatsQuestion) or front_end.stats is None:
            return None
        return StatsAnswer(front_end.stats, is_current=False)


async def _any_of(*events: asyncio.Event) -> None:
    """Returns once any of them is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
