"""Profiles of real steps: what is in the files, what ends a profile, what goes wrong with folders and disks."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import queue
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from qanat.config.profiler import ProfilerSettings
from qanat.core.batch import ScheduledBatch, StepOutput
from qanat.core.errors import ProfilerStateError, ProfileWriteError, QanatError
from qanat.core.profile import ProfileReport
from qanat.kernels import ops
from qanat.kernels.registry import all_ops
from qanat.worker.profiler import Profiler
from tests.support.fake_clock import FakeClock
from tests.worker.driver import Driver, random_prompt

WRITE_TIMEOUT_S = 60


class Profiled:
    """A driver whose steps run through a profiler, as the worker runs them."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.driver = Driver()
        self.clock = FakeClock()
        self.profiler = Profiler(ProfilerSettings(folder=str(folder), **settings), self.clock)
        self.num_requests = itertools.count()
        runner = self.driver.runner
        compute, profiler = runner.run, self.profiler

        def run(batch: ScheduledBatch) -> StepOutput:
            return profiler.run(batch, compute) if profiler.is_running else compute(batch)

        runner.run = run  # type: ignore[method-assign]

    def steps(self, num_steps: int) -> list[int]:
        """A request of one prefill and so many less one decode steps."""
        name = f"r{next(self.num_requests)}"
        self.driver.add(name, random_prompt(5, 1))
        output = self.driver.generate(name, num_steps)
        self.driver.release(name)
        return output

    def stop(self) -> ProfileReport | QanatError:
        reports: queue.Queue[ProfileReport | QanatError] = queue.Queue()
        self.profiler.stop(reports.put)
        return reports.get(timeout=WRITE_TIMEOUT_S)

    def report(self) -> ProfileReport:
        report = self.stop()
        assert isinstance(report, ProfileReport), report
        return report


def read(path: str) -> dict[str, Any]:
    opener: Callable[..., Any] = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as file:
        content: dict[str, Any] = json.load(file)
    return content


def events(path: str, category: str) -> list[dict[str, Any]]:
    return [event for event in read(path)["traceEvents"] if event.get("cat") == category]


def test_each_call_of_an_op_is_one_line(tmp_path: Path) -> None:
    profiled = Profiled(tmp_path / "a" / "b", kinds=("ops",), is_compressed=False)
    profiled.steps(2)
    profiled.profiler.start()
    profiled.steps(3)
    report = profiled.report()
    profiled.steps(2)
    assert (report.num_steps, report.ended_by) == (3, "request")
    (path,) = report.files
    steps, calls = events(path, "step"), events(path, "op")
    assert [step["args"]["tokens"] for step in steps] == [5, 1, 1]
    assert len(calls) == report.num_op_calls
    assert {call["args"]["step"] for call in calls} == {step["args"]["step"] for step in steps}
    first = [call for call in calls if call["args"]["step"] == steps[0]["args"]["step"]]
    embedding = next(call for call in first if call["name"] == "embedding")
    assert (
        embedding["args"]["shapes"][0] == [5] and embedding["args"]["provider"] == ops.embedding.chosen.name
    )
    assert {"gated_delta_net", "paged_attention", "logits"} <= {call["name"] for call in first}
    for step, after in zip(steps, [*steps[1:], {"ts": float("inf")}], strict=True):
        mine = [call for call in calls if call["args"]["step"] == step["args"]["step"]]
        assert all(step["ts"] <= call["ts"] <= after["ts"] for call in mine)
        assert 0 < sum(call["dur"] for call in mine) <= step["dur"]
    lines = Path(path).read_text().splitlines()
    assert len(lines) == len(steps) + len(calls) + 2


def test_ops_call_their_provider_directly_before_and_after(tmp_path: Path) -> None:
    def functions() -> list[object]:
        return [op._function for op in all_ops()]

    profiled = Profiled(tmp_path, kinds=("ops",))
    before = functions()
    assert before == [op.chosen.function for op in all_ops()]
    profiled.profiler.start()
    profiled.steps(1)
    assert ops.linear._function is not ops.linear.chosen.function
    profiled.report()
    assert functions() == before


def test_a_profile_changes_no_token(tmp_path: Path) -> None:
    profiled = Profiled(tmp_path)
    plain = profiled.steps(6)
    profiled.profiler.start()
    assert profiled.steps(6) == plain
    profiled.report()


def test_torchs_profile_and_ours_by_default(tmp_path: Path) -> None:
    profiled = Profiled(tmp_path, has_shapes=True, has_stacks=True, has_memory=True, has_flops=True)
    profiled.profiler.start()
    profiled.steps(2)
    report = profiled.report()
    by_kind = {Path(path).name.split(".")[1]: path for path in report.files}
    assert set(by_kind) == {"torch", "ops"}
    assert any(event["name"].startswith("aten::") for event in events(by_kind["torch"], "cpu_op"))
    assert all(path.endswith(".json.gz") for path in report.files)


def test_files_are_for_this_user_in_a_new_folder_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "profiles"
    profiled = Profiled(folder)
    names: set[str] = set()
    for _ in range(3):
        profiled.profiler.start()
        profiled.steps(1)
        names |= {Path(path).name for path in profiled.report().files}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(names) == 6 and {path.name for path in folder.iterdir()} == names
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_steps_that_are_skipped_or_warm_up_are_not_kept(tmp_path: Path) -> None:
    profiled = Profiled(tmp_path, is_compressed=False, num_skipped_steps=2, num_warmup_steps=1, max_steps=3)
    profiled.profiler.start()
    profiled.steps(10)
    assert not profiled.profiler.is_running
    report = profiled.report()
    assert (report.num_steps, report.ended_by) == (3, "max_iterations")
    ops_path = next(path for path in report.files if ".ops." in path)
    steps = events(ops_path, "step")
    assert [step["args"]["tokens"] for step in steps] == [1, 1, 1]
    assert {call["args"]["step"] for call in events(ops_path, "op")} == {
        step["args"]["step"] for step in steps
    }


@pytest.mark.parametrize("kinds", [("ops",), ("torch",), ("torch", "ops")])
def test_a_profile_ends_by_itself_when_it_is_large(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    bound_bytes = 300_000
    profiled = Profiled(tmp_path, kinds=kinds, max_trace_bytes=bound_bytes, is_compressed=False)
    profiled.profiler.start()
    while profiled.profiler.is_running:
        profiled.steps(1)
    report = profiled.report()
    assert report.ended_by == "max_trace_bytes" and report.num_steps >= 1
    if kinds == ("ops",):
        assert os.path.getsize(report.files[0]) < 1.2 * bound_bytes


def test_a_profile_ends_by_itself_after_its_time_and_hands_over_once(tmp_path: Path) -> None:
    profiled = Profiled(tmp_path, kinds=("ops",), max_duration_s=10.0)
    profiled.profiler.start()
    profiled.steps(1)
    profiled.clock.advance(9.0)
    profiled.profiler.end_overdue()
    assert profiled.profiler.is_running
    profiled.clock.advance(1.0)
    profiled.profiler.end_overdue()
    assert not profiled.profiler.is_running
    assert profiled.report().ended_by == "max_duration_s"
    with pytest.raises(ProfilerStateError, match="start_profile"):
        profiled.profiler.stop(lambda report: None)


def test_starting_twice_and_stopping_without_a_start(tmp_path: Path) -> None:
    profiled = Profiled(tmp_path, kinds=("ops",))
    with pytest.raises(ProfilerStateError, match="start_profile"):
        profiled.profiler.stop(lambda report: None)
    profiled.profiler.start()
    with pytest.raises(ProfilerStateError, match="already"):
        profiled.profiler.start()
    profiled.steps(1)
    assert profiled.report().num_steps == 1


def test_a_profile_without_a_step_has_no_files(tmp_path: Path) -> None:
    profiled = Profiled(tmp_path)
    profiled.profiler.start()
    assert profiled.report().files == []
    assert list(tmp_path.iterdir()) == []


def test_profiling_that_is_off() -> None:
    with pytest.raises(ProfilerStateError, match="--profiler-config"):
        Profiler(None).start()


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    profiled = Profiled(tmp_path / "file" / "below")
    with pytest.raises(ProfileWriteError, match="torch_profiler_dir"):
        profiled.profiler.start()
    assert not profiled.profiler.is_running
    profiled.steps(1)


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """As on a full disk: no file grows beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kinds", [("ops",), ("torch",)])
@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("num_bytes", [1, 4096])
def test_a_disk_that_is_full_is_told_and_leaves_nothing_behind(
    tmp_path: Path, kinds: tuple[str, ...], is_compressed: bool, num_bytes: int
) -> None:
    profiled = Profiled(tmp_path, kinds=kinds, is_compressed=is_compressed)
    profiled.profiler.start()
    profiled.steps(60)
    with room_for(num_bytes):
        error = profiled.stop()
    assert isinstance(error, ProfileWriteError)
    assert str(tmp_path) in error.message
    assert list(tmp_path.iterdir()) == []
    profiled.profiler.start()
    profiled.steps(1)
    assert len(profiled.report().files) == 1


def test_a_profiler_that_fails_ends_the_profile_and_no_request(tmp_path: Path) -> None:
    """A setting that no flag can give makes torch refuse to start."""
    profiled = Profiled(tmp_path, num_warmup_steps=-1)
    plain = profiled.steps(4)
    profiled.profiler.start()
    assert profiled.steps(4) == plain
    assert not profiled.profiler.is_running
    error = profiled.stop()
    assert isinstance(error, ProfileWriteError) and "could not be recorded" in error.message
    assert [op._function for op in all_ops()] == [op.chosen.function for op in all_ops()]
    assert list(tmp_path.iterdir()) == []
    profiled.profiler.start()  # the next one is refused for what is wrong, not for what is left of this one


def test_a_step_that_fails_fails_as_ever_and_the_profile_goes_on(tmp_path: Path) -> None:
    profiled = Profiled(tmp_path, kinds=("ops",))
    batch = ScheduledBatch(step_id=7, rows=[], new_rows=[], freed_rows=[])

    def fail(_: ScheduledBatch) -> None:
        raise ValueError("the step's own error")

    profiled.profiler.start()
    with pytest.raises(ValueError, match="own error"):
        profiled.profiler.run(batch, fail)
    profiled.steps(2)
    assert profiled.report().num_steps == 3
