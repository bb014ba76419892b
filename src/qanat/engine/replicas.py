"""All replicas of an engine: who gets a call, what stands in its way, and what all of them are asked together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence

from qanat.core.errors import EngineRestartingError, InvalidRequestError, ProfilerStateError, QanatError
from qanat.core.profile import ProfileReport
from qanat.engine.balancer import Balancer
from qanat.engine.core_line import EngineHealth
from qanat.engine.metrics import EngineStats, total_stats
from qanat.engine.replica import Reader, Replica, Started
from qanat.engine.replica_health import health_of_replicas
from qanat.structured.compiler import CompileStats


class Replicas:
    """Replicas by rank.

    Args:
        started: at least one.
        reader: is told the news of all.
    """

    def __init__(self, started: Sequence[Started], reader: Reader) -> None:
        is_named = len(started) > 1
        self._replicas = {one.seat.rank: Replica(one, reader, is_named=is_named) for one in started}
        self._balancer = Balancer()

    def __iter__(self) -> Iterator[Replica]:
        """By rank."""
        return iter(self._replicas.values())

    @property
    def first(self) -> Replica:
        """The one with the lowest rank."""
        return next(iter(self))

    def check_rank(self, rank: int | None) -> None:
        """Refuses the number of a replica that there is not.

        Raises:
            InvalidRequestError: with those that there are.
        """
        if rank is not None and rank not in self._replicas:
            ranks = ", ".join(map(str, self._replicas))
            raise InvalidRequestError(
                f"There is no replica {rank} here; there is: {ranks}.", param="data_parallel_rank"
            )

    def obstacle(self, rank: int | None = None) -> QanatError | None:
        """Why no call can be taken, or none by this replica; None if one can."""
        deaths = [one.line.death for one in self if rank in (None, one.rank)]
        reasons = [death for death in deaths if death is not None]
        if len(reasons) < len(deaths):
            return None
        comebacks = [reason for reason in reasons if isinstance(reason, EngineRestartingError)]
        return min(comebacks, key=lambda one: one.retry_after_s, default=reasons[0])

    def choose(self, rank: int | None, tried: Collection[int] = ()) -> Replica | None:
        """The one that gets the next call: of those that make progress, if any does; None if there is none.

        Args:
            rank: the only one that may get it; None for any.
            tried: those that did not take it.
        """
        open_ones = [one for one in self if one.is_up and rank in (None, one.rank) and one.rank not in tried]
        if not open_ones:
            return None
        quick = [one for one in open_ones if not one.line.stalls.is_stalled] or open_ones
        return self._replicas[self._balancer.choose({one.rank: one.load.num_tokens for one in quick})]

    def health(self) -> EngineHealth:
        """See `health_of_replicas`."""
        return health_of_replicas({one.rank: one.health() for one in self})

    def stats(self, compiler: CompileStats) -> EngineStats:
        """Figures of all and of each."""
        return total_stats({one.rank: one.stats() for one in self}, compiler)

    async def start_profile(self) -> None:
        """Has all that are up record their steps; if one cannot, none does.

        Raises:
            QanatError: of the first one that cannot.
        """
        asked = self._up()
        outcomes = await asyncio.gather(*(one.line.start_profile() for one in asked), return_exceptions=True)
        failures = [outcome for outcome in outcomes if outcome is not None]
        if failures:
            begun = [one for one, outcome in zip(asked, outcomes, strict=True) if outcome is None]
            await asyncio.gather(*(one.line.stop_profile() for one in begun), return_exceptions=True)
            raise failures[0]

    async def stop_profile(self) -> ProfileReport:
        """Ends the profiles of all; a replica that was restarted meanwhile has none.

        Raises:
            QanatError: none of them has one, or one could not write its files.
        """
        outcomes = await asyncio.gather(
            *(one.line.stop_profile() for one in self._up()), return_exceptions=True
        )
        reports = [outcome for outcome in outcomes if isinstance(outcome, ProfileReport)]
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        serious = [failure for failure in failures if not isinstance(failure, ProfilerStateError)]
        if serious or not reports:
            raise (serious or failures)[0]
        return ProfileReport(
            files=[file for report in reports for file in report.files],
            num_steps=sum(report.num_steps for report in reports),
            num_op_calls=sum(report.num_op_calls for report in reports),
            duration_s=max(report.duration_s for report in reports),
            ended_by=reports[0].ended_by,
        )

    async def reset_prefixes(self) -> None:
        """Has all that are up forget their cached prefixes; those that cannot keep them.

        Raises:
            QanatError: of the first one that cannot.
        """
        outcomes = await asyncio.gather(
            *(one.line.reset_prefixes() for one in self._up()), return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def close(self) -> None:
        """Ends all requests and cores. Safe to call twice."""
        await asyncio.gather(*(one.close() for one in self))

    def _up(self) -> list[Replica]:
        """Those that can be asked.

        Raises:
            EngineDeadError: there is none.
        """
        obstacle = self.obstacle()
        if obstacle is not None:
            raise obstacle
        return [one for one in self if one.is_up]
