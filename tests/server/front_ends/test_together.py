"""What all front ends counted and found, as one."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from qanat.engine.core_line import EngineHealth
from qanat.engine.metrics import EngineMetrics, EngineStats
from qanat.scheduler.stats import SchedulerStats
from qanat.server.front_ends.together import added_stats, joint_health
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
    assert joint_health([health(2, 0.1), health(3)]) == health(5, 0.1)
    assert joint_health([health(), health(1, 9.0, is_healthy=False)]) == health(1, 9.0, is_healthy=False)
    restarting = EngineHealth(True, 0, 0.0, False, True, "It was killed.")
    assert joint_health([health(), restarting]) == restarting
