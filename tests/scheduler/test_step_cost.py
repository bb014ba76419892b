"""S9: what a step does is the same however many requests wait."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from tests.support.step_loop import StepLoop, make_request

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "scheduler.py"


def count_calls(loop: StepLoop, num_steps: int) -> int:
    """Function calls, Python and C, made by scheduler and cache in so many steps."""
    num_calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    gc.collect()
    gc.disable()  # a collection in the middle may call back, as hypothesis has it do
    for _ in range(num_steps):
        sys.setprofile(count)
        loop.scheduler.expire()
        batch = loop.scheduler.schedule()
        sys.setprofile(None)
        assert batch is not None
        output = loop.executor.execute(batch).result()
        sys.setprofile(count)
        loop.scheduler.update(batch, output)
        loop.scheduler.stats()
        sys.setprofile(None)
    gc.enable()
    return num_calls


def crowded_loop(num_waiting: int, **limits: object) -> StepLoop:
    loop = StepLoop(max_num_seqs=4, max_waiting_requests=10_000, **limits)
    for index in range(2 + num_waiting):
        loop.add(make_request(f"r{index}", 16, 60, deadline_s=100.0 + index, priority=-index))
    loop.step()
    return loop


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_s9_a_long_queue_before_full_pools_costs_nothing(policy: str) -> None:
    # 5 blocks: two requests and a block of headroom for each leave no room for a third, though there are rows.
    loops = [crowded_loop(num_waiting, num_blocks=5, policy=policy) for num_waiting in (1, 3000)]
    assert [loop.scheduler.num_running for loop in loops] == [2, 2]
    few, many = [count_calls(loop, 20) for loop in loops]
    assert few == many


@pytest.mark.parametrize("overlap_depth", [0, 1])
def test_s9_a_long_queue_before_full_rows_costs_nothing(overlap_depth: int) -> None:
    loops = [crowded_loop(num_waiting, overlap_depth=overlap_depth) for num_waiting in (4, 3000)]
    assert [loop.scheduler.num_running for loop in loops] == [4, 4]
    few, many = [count_calls(loop, 20) for loop in loops]
    assert few == many


@pytest.mark.parametrize("more", [[], ["--overlapped"]])
def test_the_benchmark_runs_and_prints_a_line_per_case(more: list[str]) -> None:
    sizes = ["--running", "1", "32", "--waiting", "0", "100"]
    command = [sys.executable, str(BENCHMARK), "--steps", "4", "--repeat", "1", *sizes, *more]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.stderr == ""
    cases = [tuple(map(int, line.split()[:2])) for line in result.stdout.splitlines()[1:]]
    assert cases == [(running, waiting) for running in (1, 32) for waiting in (0, 100)]
