"""What all front ends counted and found, as one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.engine.core_line import EngineHealth
from qanat.engine.metrics import EngineMetrics, EngineStats
from qanat.scheduler.stats import SchedulerStats
from qanat.server.errors import UnavailableError
from qanat.server.front_ends import together
from qanat.server.front_ends.crew import FrontEnd
from qanat.server.front_ends.line import Line, Reply
from qanat.server.front_ends.supervisor import answer_of
from qanat.server.front_ends.together import Together, added_stats, health_of_front_ends
from qanat.server.front_ends.words import (
    AbortAnswer,
    AbortQuestion,
    Gathered,
    HealthQuestion,
    RequestsAnswer,
    StatsAnswer,
    StatsQuestion,
    Word,
)
from qanat.server.recent import RequestRecord
from qanat.server.siblings import Alone
from qanat.structured.compiler import CompileStats
from tests.support.step_loop import make_request

SCHEDULER = SchedulerStats(num_running=3, num_waiting=2, num_preemptions=7, cache_usage=0.5)


def counted(max_tokens: list[int], num_compiles: int = 0, ranks: tuple[int, ...] = ()) -> EngineStats:
    """Figures of a front end that sent these requests; those of the scheduler are the same for all."""
    metrics = EngineMetrics()
    for index, most in enumerate(max_tokens):
        metrics.on_admitted(make_request(f"r{index}", 3, most))
    stats = metrics.snapshot(SCHEDULER, CompileStats(num_compiles=num_compiles))
    return msgspec.structs.replace(stats, replicas={rank: stats for rank in ranks})


@given(st.lists(st.lists(st.integers(1, 10**6), max_size=5), min_size=1, max_size=5))
def test_counts_of_all_are_those_of_one_that_did_everything(shares: list[list[int]]) -> None:
    parts = [counted(share, num_compiles=len(share), ranks=(0, 1)) for share in shares]
    whole = [most for share in shares for most in share]
    assert added_stats(parts[0], parts[1:]) == counted(whole, num_compiles=len(whole), ranks=(0, 1))


def test_a_replica_that_only_others_have_known_is_there() -> None:
    total = added_stats(counted([1], ranks=(0,)), [counted([2, 3], ranks=(0, 1)), counted([4], ranks=(1,))])
    sums = {
        rank: sum(one.histograms["request_params_max_tokens"].counts) for rank, one in total.replicas.items()
    }
    assert sums == {0: 3, 1: 3}


def health(num_pending: int = 0, age_s: float = 0.0, *, is_healthy: bool = True) -> EngineHealth:
    return EngineHealth(True, num_pending, age_s, is_healthy)


def test_what_any_finds_wrong_is_wrong_and_what_is_pending_anywhere_is_pending() -> None:
    assert health_of_front_ends([health(2, 0.1), health(3)]) == health(5, 0.1)
    assert health_of_front_ends([health(), health(1, 9.0, is_healthy=False)]) == health(
        1, 9.0, is_healthy=False
    )
    restarting = EngineHealth(True, 0, 0.0, False, True, "It was killed.")
    assert health_of_front_ends([health(), restarting]) == restarting


def test_figures_of_the_engine_are_of_who_has_heard_most_and_never_of_earlier() -> None:
    fresh = msgspec.structs.replace(counted([1]), step_s=0.0, num_preemptions=0, num_running=0)
    newest = msgspec.structs.replace(counted([1]), step_s=9.0, num_preemptions=8, num_running=1)
    earlier = msgspec.structs.replace(counted([1]), step_s=99.0, num_preemptions=99)
    every = [
        msgspec.structs.replace(one, replicas={0: one}) for one in (fresh, newest, earlier, counted([1]))
    ]
    for own, other in (every[:2], every[1::-1]):
        total = added_stats(own, [other], [every[2]])
        for one in (total, total.replicas[0]):
            assert (one.step_s, one.num_preemptions, one.num_running) == (9.0, 8, 1)
            assert sum(one.histograms["request_params_max_tokens"].counts) == 3


def record(name: str, age_s: float) -> RequestRecord:
    return RequestRecord(name, age_s, 1.0, False, 0.1, 0.2, 0.3, 0.4, 4, 0, 5)


class KnownFigures(Alone):
    """The own part of a front end whose figures do not change."""

    def __init__(self, num_aborted: int = 0) -> None:
        self._num_aborted = num_aborted

    async def stats(self) -> EngineStats:
        """See `Alone`."""
        return counted([1], ranks=(0,))

    async def health(self) -> EngineHealth:
        """See `Alone`."""
        return health(2)

    async def abort(self, request_id: str) -> int:
        """See `Alone`."""
        return self._num_aborted

    async def requests(self) -> list[RequestRecord]:
        """See `Alone`."""
        return [record("own", 3.0)]


@contextlib.asynccontextmanager
async def parent(answers: list[Gathered]) -> AsyncIterator[Line]:
    """A front end's line to a parent that gives these answers and then stands still."""

    def take(word: Word, reply: Reply) -> None:
        if answers:
            reply(answers.pop(0))

    ours, theirs = socket.socketpair()
    ends = (await Line.over(ours, lambda word, reply: None), await Line.over(theirs, take))
    running = [asyncio.create_task(end.run()) for end in ends]
    try:
        async with asyncio.timeout(60):
            yield ends[0]
    finally:
        for end in ends:
            end.close()
        await asyncio.gather(*running)


@pytest.mark.asyncio
async def test_while_the_parent_stands_still_a_front_end_says_what_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(together, "STATS_S", 60.0)
    async with parent([Gathered([StatsAnswer(counted([2, 3], ranks=(0,)))])]) as line:
        front_end = Together(line, KnownFigures())
        before = await front_end.stats()
        monkeypatch.setattr(together, "STATS_S", 0.1)
        after, found = await asyncio.gather(front_end.stats(), front_end.health())
        assert before == after == counted([1, 2, 3], ranks=(0,))
        assert found == health(2)
        aborts = (Together(line, KnownFigures(one)).abort("a") for one in (0, 1))
        nowhere, here = await asyncio.gather(*aborts, return_exceptions=True)
        assert isinstance(nowhere, UnavailableError) and here == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("num_own", "num_others", "num_silent"), [(0, 0, 1), (0, 1, 1), (1, 0, 1), (0, 0, 0)]
)
async def test_an_abort_is_unanswered_where_who_is_silent_may_run_the_request(
    num_own: int, num_others: int, num_silent: int
) -> None:
    async with parent([Gathered([AbortAnswer(num_others)], num_silent)]) as line:
        abort = Together(line, KnownFigures(num_own)).abort("a")
        if num_silent and not num_own and not num_others:
            with pytest.raises(UnavailableError):
                await abort
        else:
            assert await abort == num_own + num_others


@pytest.mark.asyncio
async def test_the_last_counts_of_a_front_end_that_stands_still_count_on() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    async with parent([]) as line:
        front_end = FrontEnd(1, process, line)
        questions = (StatsQuestion(), HealthQuestion(), AbortQuestion("a"))
        assert await asyncio.gather(*(answer_of(front_end, one) for one in questions)) == [None] * 3
        front_end.stats = counted([1])
        assert await answer_of(front_end, StatsQuestion()) == StatsAnswer(counted([1]), is_current=False)
    await process.wait()


@pytest.mark.asyncio
async def test_requests_of_all_are_one_list_and_of_who_is_silent_there_are_none() -> None:
    others = [
        RequestsAnswer([record("newest", 1.0), record("oldest", 9.0)]),
        RequestsAnswer([record("next", 2.0)]),
    ]
    async with parent([Gathered([*others])]) as line:
        together = Together(line, KnownFigures())
        assert [one.id for one in await together.requests()] == ["newest", "next", "own", "oldest"]
        line.close()
        assert [one.id for one in await together.requests()] == ["own"]
