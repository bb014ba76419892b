"""In a front end: what it knows and what all others know, as one."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence

import msgspec

from qanat.engine.core_line import EngineHealth
from qanat.engine.metrics import EngineStats, added_histograms
from qanat.server.errors import UnavailableError
from qanat.server.front_ends.line import Line, unanswered
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
)
from qanat.server.recent import RequestRecord, newest
from qanat.server.siblings import Alone
from qanat.structured.compiler import CompileStats

HEALTH_S = 0.8
"""How long the parent may take to tell the health of all: probes wait a second by default."""
STATS_S = 2.0
"""The same for counts and aborts, for which it waits a second itself."""


class Together:
    """The `Siblings` of a front end.

    Args:
        line: to the parent, which asks the others.
        alone: what this one knows itself.
    """

    def __init__(self, line: Line, alone: Alone) -> None:
        self._line = line
        self._alone = alone
        self._last: list[StatsAnswer] = []

    async def stats(self) -> EngineStats:
        """See `Siblings`."""
        own = await self._alone.stats()
        try:
            gathered = await self._gather(StatsQuestion(own), STATS_S)
            answers = [one for one in gathered.answers if isinstance(one, StatsAnswer)]
            self._last = [StatsAnswer(one.stats, is_current=False) for one in answers]
        except UnavailableError:
            answers = self._last
        return added_stats(
            own,
            [one.stats for one in answers if one.is_current],
            [one.stats for one in answers if not one.is_current],
        )

    async def health(self) -> EngineHealth:
        """See `Siblings`."""
        own = await self._alone.health()
        answers: Sequence[Answer] = []
        with contextlib.suppress(UnavailableError):  # a probe needs an answer, of what is known here
            answers = (await self._gather(HealthQuestion(), HEALTH_S)).answers
        return health_of_front_ends([own, *(one.health for one in answers if isinstance(one, HealthAnswer))])

    async def abort(self, request_id: str) -> int:
        """See `Siblings`."""
        own = await self._alone.abort(request_id)
        try:
            gathered = await self._gather(AbortQuestion(request_id), STATS_S)
        except UnavailableError:
            if own:
                return own
            raise
        num_aborted = own + sum(one.num_aborted for one in gathered.answers if isinstance(one, AbortAnswer))
        if not num_aborted and gathered.num_silent:  # it may run there: nobody can say that it does not
            raise unanswered()
        return num_aborted

    async def requests(self) -> list[RequestRecord]:
        """See `Siblings`."""
        own = await self._alone.requests()
        answers: Sequence[Answer] = []
        with contextlib.suppress(UnavailableError):  # of those that do not answer in time, none is shown
            answers = (await self._gather(RequestsQuestion(), STATS_S)).answers
        others = [one.requests for one in answers if isinstance(one, RequestsAnswer)]
        return newest(itertools.chain(own, *others))

    async def answer(self, question: Question) -> Answer:
        """What this front end says to a question of another one."""
        if isinstance(question, StatsQuestion):
            return StatsAnswer(await self._alone.stats())
        if isinstance(question, HealthQuestion):
            return HealthAnswer(await self._alone.health())
        if isinstance(question, RequestsQuestion):
            return RequestsAnswer(await self._alone.requests())
        return AbortAnswer(await self._alone.abort(question.request_id))

    async def _gather(self, question: Question, limit_s: float) -> Gathered:
        return await self._line.ask(question, Gathered, limit_s)


def added_stats(
    own: EngineStats, others: Sequence[EngineStats], earlier: Sequence[EngineStats] = ()
) -> EngineStats:
    """Counts of all front ends.

    What the engine itself counts and shows is in each of them, and taken from the one that has heard most of it.

    Args:
        own: of one of them.
        others: of others, now.
        earlier: what others have said before, whose figures of the engine are old.
    """
    every = [own, *others, *earlier]
    newest = max([own, *others], key=lambda one: one.step_s)
    return msgspec.structs.replace(
        newest,
        num_restarts=own.num_restarts,
        num_prompt_tokens=sum(one.num_prompt_tokens for one in every),
        num_cached_tokens=sum(one.num_cached_tokens for one in every),
        num_output_tokens=sum(one.num_output_tokens for one in every),
        num_finished={
            reason: sum(one.num_finished.get(reason, 0) for one in every) for reason in own.num_finished
        },
        compiler=CompileStats(
            *(sum(getattr(one.compiler, name) for one in every) for name in CompileStats.__struct_fields__)
        ),
        histograms={
            name: added_histograms([one.histograms[name] for one in every]) for name in own.histograms
        },
        replicas={
            rank: _added_replica(rank, [own, *others], earlier)
            for rank in sorted({rank for one in every for rank in one.replicas})
        },
    )


def health_of_front_ends(every: Sequence[EngineHealth]) -> EngineHealth:
    """Health over all front ends: what any of them finds wrong is wrong."""
    return EngineHealth(
        is_alive=all(one.is_alive for one in every),
        num_pending=sum(one.num_pending for one in every),
        last_step_age_s=max(one.last_step_age_s for one in every),
        is_healthy=all(one.is_healthy for one in every),
        is_restarting=any(one.is_restarting for one in every),
        reason=next((one.reason for one in every if one.reason), ""),
        replicas={
            rank: health_of_front_ends([one.replicas[rank] for one in every if rank in one.replicas])
            for rank in sorted({rank for one in every for rank in one.replicas})
        },
    )


def _added_replica(rank: int, current: Sequence[EngineStats], earlier: Sequence[EngineStats]) -> EngineStats:
    """The sum over all that know this replica."""
    now = [one.replicas[rank] for one in current if rank in one.replicas]
    before = [one.replicas[rank] for one in earlier if rank in one.replicas]
    if now:
        return added_stats(now[0], now[1:], before)
    return added_stats(before[0], before[1:])
