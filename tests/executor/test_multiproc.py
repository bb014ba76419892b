"""Ranks in processes of their own: the same answers as one process, and an end for all when one dies."""

from __future__ import annotations

import dataclasses
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qanat.config.profiler import ProfilerSettings
from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import CapacityError, CheckpointError, EngineDeadError, QanatError
from qanat.core.memory_plan import MemoryPlan
from qanat.core.profile import ProfileReport
from qanat.engine.core import EngineCore
from qanat.executor.multiproc import MultiprocExecutor
from qanat.executor.planning import plan_start
from tests.executor.test_uniproc import Loop
from tests.worker.driver import random_prompt
from tests.worker.tiny_model import tiny_config

NOTICE_S = 60.0


def shared_config(size: int = 2, **changes: Any) -> ResolvedConfig:
    return dataclasses.replace(tiny_config(), tensor_parallel_size=size, **changes)


def plan_of(config: ResolvedConfig) -> MemoryPlan:
    return plan_start(config, available_bytes=2**31).memory


def start(config: ResolvedConfig, *command: str) -> MultiprocExecutor:
    options: dict[str, Any] = {"command": command} if command else {}
    return MultiprocExecutor(config, plan_of(config), **options)


def children() -> set[int]:
    path = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return {int(pid) for pid in path.read_text().split()}


def holds_within(limit_s: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    before, shared = children(), set(os.listdir("/dev/shm"))
    yield
    assert holds_within(NOTICE_S, lambda: children() <= before)
    assert {name for name in set(os.listdir("/dev/shm")) - shared if "qanat" in name} == set()


def requests_in(loop: Loop) -> None:
    for i in range(4):
        sampling = {"temperature": 0.9, "top_k": 40, "frequency_penalty": 0.3, "logprobs": 2} if i % 2 else {}
        loop.add(f"r{i}", random_prompt(9 + 11 * i, i), 12, seed=i, **sampling)


def test_two_processes_answer_like_one_and_can_be_shut_down_twice() -> None:
    alone, config = Loop(tiny_config()), shared_config()
    executor = start(config)
    try:
        shared = Loop(config, executor)
        for loop in (alone, shared):
            requests_in(loop)
            loop.run()
            loop.check_idle()
        assert shared.tokens == alone.tokens
        assert any("paged_attention" in line for line in executor.op_table())
        executor.check()
    finally:
        executor.shutdown()
    executor.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        executor.start_profile()


def run_core(core: EngineCore, loop: Loop) -> None:
    while core.has_work:
        loop.take(core.step())
        core.check()


def test_overlapped_steps_of_two_ranks_change_nothing_and_a_killed_rank_is_named() -> None:
    alone, config = Loop(tiny_config()), shared_config()
    config = dataclasses.replace(config, scheduler=dataclasses.replace(config.scheduler, is_overlapped=True))
    executor = start(config)
    try:
        shared = Loop(config, executor)
        core = EngineCore(shared.scheduler, executor)
        for loop in (alone, shared):
            requests_in(loop)
            loop.add("stopped", random_prompt(20, 7), 30, stop_token_ids=[30, 40, 50, 60, 70])
        alone.run()
        run_core(core, shared)
        shared.check_idle()
        assert shared.tokens == alone.tokens
        shared.add("last", random_prompt(20, 7), 100)
        core.step()
        (victim,) = [peer.pid for peer in executor._ranks.peers]
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(EngineDeadError, match=rf"Rank 1 \(process {victim}\) was killed by SIGKILL"):
            run_core(core, shared)
    finally:
        executor.shutdown()


def test_a_rank_that_is_killed_is_named_and_ends_all() -> None:
    config = shared_config()
    executor = start(config)
    try:
        loop = Loop(config, executor)
        requests_in(loop)
        loop.step()
        (victim,) = [peer.pid for peer in executor._ranks.peers]
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(EngineDeadError, match=rf"Rank 1 \(process {victim}\) was killed by SIGKILL"):
            for _ in range(1000):
                loop.step()
        with pytest.raises(EngineDeadError, match="Rank 1"):
            executor.check()
    finally:
        executor.shutdown()


@pytest.mark.slow
def test_of_four_ranks_the_one_that_was_killed_is_named() -> None:
    alone, config = Loop(tiny_config()), shared_config(4)
    executor = start(config)
    try:
        loop = Loop(config, executor)
        for each in (alone, loop):
            requests_in(each)
            each.run()
        assert loop.tokens == alone.tokens
        victim = executor._ranks.peers[1].pid
        loop.add("late", random_prompt(9, 9), 50)
        loop.step()
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(EngineDeadError, match=rf"Rank 2 \(process {victim}\) was killed by SIGKILL"):
            loop.run()
    finally:
        executor.shutdown()


@pytest.mark.slow
def test_a_rank_that_stands_still_in_a_step_is_not_waited_for_longer_than_the_step_timeout() -> None:
    config = shared_config(step_timeout_s=10.0)
    executor = start(config)
    try:
        loop = Loop(config, executor)
        requests_in(loop)
        loop.step()
        (victim,) = [peer.pid for peer in executor._ranks.peers]
        os.kill(victim, signal.SIGSTOP)
        with pytest.raises(EngineDeadError, match=rf"Rank 1 \(process {victim}\) stood still"):
            loop.run()
    finally:
        executor.shutdown()


def test_a_rank_that_dies_while_nothing_is_asked_is_noticed() -> None:
    executor = start(shared_config())
    try:
        executor.check()
        os.kill(executor._ranks.peers[0].pid, signal.SIGKILL)
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            while True:
                executor.check()
                time.sleep(0.01)
    finally:
        executor.shutdown()


def test_a_silent_rank_is_named_after_the_init_timeout() -> None:
    with pytest.raises(
        EngineDeadError, match=r"Rank 1 \(process \d+\) did not report within 1 s .*--init-timeout-s"
    ):
        start(shared_config(init_timeout_s=2.0), sys.executable, "-c", "import sys; sys.stdin.read()")


def test_a_rank_that_cannot_start_is_named() -> None:
    with pytest.raises(EngineDeadError, match=r"Rank 1 \(process \d+\) ended with exit code 3"):
        start(shared_config(), sys.executable, "-c", "raise SystemExit(3)")


def test_what_a_rank_cannot_load_keeps_its_kind() -> None:
    config = shared_config(load_format="auto", model_path="/nonexistent/model")
    with pytest.raises(CheckpointError):
        start(config)


def test_a_rank_with_too_little_memory_is_refused() -> None:
    config = shared_config()
    plan = dataclasses.replace(plan_of(config), weight_bytes=2**50)
    with pytest.raises(CapacityError, match=r"Rank 1 .* each rank needs"):
        MultiprocExecutor(config, plan)


def test_every_rank_writes_its_own_profile(tmp_path: Path) -> None:
    config = shared_config(profiler=ProfilerSettings(folder=str(tmp_path)))
    executor = start(config)
    try:
        loop = Loop(config, executor)
        requests_in(loop)
        executor.start_profile()
        loop.run()
        reports: queue.Queue[ProfileReport | QanatError] = queue.Queue()
        executor.stop_profile(reports.put)
        report = reports.get(timeout=60)
        assert isinstance(report, ProfileReport) and all("-rank0." in name for name in report.files)
        assert holds_within(60, lambda: len(list(tmp_path.glob("*-rank1.*.json*"))) == len(report.files) > 0)
        executor.check()
    finally:
        executor.shutdown()
