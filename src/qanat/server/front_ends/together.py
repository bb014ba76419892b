"""In a front end: what it knows and what all others know, as one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qanat.engine.core_line import EngineHealth
from qanat.engine.metrics import EngineStats, added_histograms
from qanat.server.front_ends.line import Line
from qanat.server.front_ends.words import (
    AbortAnswer,
    AbortQuestion,
    Answer,
    Gathered,
    HealthAnswer,
    HealthQuestion,
    Question,
    StatsAnswer,
    StatsQuestion,
)
from qanat.server.siblings import Alone
from qanat.structured.compiler import CompileStats


class Together:
    """The `Siblings` of a front end.

    Args:
        line: to the parent, which asks the others.
        alone: what this one knows itself.
    """

    def __init__(self, line: Line, alone: Alone) -> None:
        self._line = line
        self._alone = alone

    async def stats(self) -> EngineStats:
        """See `Siblings`."""
        own = await self._alone.stats()
        answers = await self._gather(StatsQuestion(own))
        return added_stats(own, [one.stats for one in answers if isinstance(one, StatsAnswer)])

    async def health(self) -> EngineHealth:
        """See `Siblings`."""
        own = await self._alone.health()
        answers = await self._gather(HealthQuestion())
        return joint_health([own, *(one.health for one in answers if isinstance(one, HealthAnswer))])

    async def abort(self, request_id: str) -> int:
        """See `Siblings`."""
        own = await self._alone.abort(request_id)
        answers = await self._gather(AbortQuestion(request_id))
        return own + sum(one.num_aborted for one in answers if isinstance(one, AbortAnswer))

    async def answer(self, question: Question) -> Answer:
        """What this front end says to a question of another one."""
        if isinstance(question, StatsQuestion):
            return StatsAnswer(await self._alone.stats())
        if isinstance(question, HealthQuestion):
            return HealthAnswer(await self._alone.health())
        return AbortAnswer(await self._alone.abort(question.request_id))

    async def _gather(self, question: Question) -> Sequence[Answer]:
        return (await self._line.ask(question, Gathered)).answers


def added_stats(own: EngineStats, others: Sequence[EngineStats]) -> EngineStats:
    """Counts of all front ends; what the engine itself counts and shows is in each of them, so it is taken once."""
    every = [own, *others]
    return msgspec.structs.replace(
        own,
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
            rank: added_stats(*_split([one.replicas[rank] for one in every if rank in one.replicas]))
            for rank in sorted({rank for one in every for rank in one.replicas})
        },
    )


def joint_health(every: Sequence[EngineHealth]) -> EngineHealth:
    """Health over all front ends: what any of them finds wrong is wrong."""
    return EngineHealth(
        is_alive=all(one.is_alive for one in every),
        num_pending=sum(one.num_pending for one in every),
        last_step_age_s=max(one.last_step_age_s for one in every),
        is_healthy=all(one.is_healthy for one in every),
        is_restarting=any(one.is_restarting for one in every),
        reason=next((one.reason for one in every if one.reason), ""),
        replicas={
            rank: joint_health([one.replicas[rank] for one in every if rank in one.replicas])
            for rank in sorted({rank for one in every for rank in one.replicas})
        },
    )


def _split(every: Sequence[EngineStats]) -> tuple[EngineStats, Sequence[EngineStats]]:
    return every[0], every[1:]
