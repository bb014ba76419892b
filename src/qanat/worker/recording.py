"""A profile while it is recorded: torch's events, our ops, or both, step by step."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from torch.profiler import ProfilerActivity, profile, schedule

from qanat.config.profiler import ProfilerSettings
from qanat.core.batch import ScheduledBatch
from qanat.kernels.op_trace import OpCall, OpTrace
from qanat.worker.heap import heap_bytes

OP_LINE_BYTES = 320
"""What one call takes in a file, before compression, at most but for rare shapes."""
LINES_PER_CHUNK = 512
"""So many lines are made at a time: about a millisecond in which no step gets on."""
FOREVER = 2**40


class TraceEvent(msgspec.Struct, frozen=True):
    """An event with a duration in the format that Chrome and Perfetto read; times in microseconds."""

    name: str
    cat: str
    ts: float
    dur: float
    pid: int
    tid: int
    args: dict[str, Any]
    ph: str = "X"


@dataclass(frozen=True)
class StepSpan:
    """A recorded step: its number, when it began, how long it took, rows and tokens in it."""

    step_id: int
    start_ns: int
    duration_ns: int
    num_rows: int
    num_tokens: int


class Recording:
    """Records the steps that it is told of. Everything happens in the thread that computes.

    Args:
        settings: what is recorded, and how much.

    Attributes:
        num_steps: recorded so far.
    """

    def __init__(self, settings: ProfilerSettings) -> None:
        self._settings = settings
        self._num_to_skip = settings.num_skipped_steps
        self._num_to_warm_up = settings.num_warmup_steps
        self._torch: profile | None = None
        self._trace = OpTrace()
        self._spans: list[StepSpan] = []
        self._start_heap_bytes = 0
        self._is_begun = False
        self._is_in_step = False
        self._step_start_ns = 0
        self.num_steps = 0

    def begin_step(self, step_id: int) -> None:
        """To be called before a step is computed."""
        self._is_in_step = self._num_to_skip == 0
        if not self._is_in_step:
            self._num_to_skip -= 1
            return
        self._begin()
        self._trace.step_id = step_id
        self._step_start_ns = time.perf_counter_ns()

    def end_step(self, batch: ScheduledBatch) -> None:
        """To be called when it has been computed, or has failed."""
        if not self._is_in_step:
            return
        if self._num_to_warm_up > 0:
            self._num_to_warm_up -= 1
            self._trace.calls.clear()
        else:
            self._keep(batch)
        if self._torch is not None:
            self._torch.step()

    @property
    def num_op_calls(self) -> int:
        """Calls of ops recorded so far."""
        return len(self._trace.calls)

    @property
    def bound_reached(self) -> str:
        """The setting that says that it is enough; empty if none does."""
        settings = self._settings
        if settings.max_steps and self.num_steps >= settings.max_steps:
            return "max_iterations"
        return "max_trace_bytes" if self.size_bytes >= settings.max_trace_bytes else ""

    @property
    def size_bytes(self) -> int:
        """What has been recorded, before compression: exact to some per cent for ops, to a factor of two for torch."""
        num_bytes = OP_LINE_BYTES * len(self._trace.calls) if "ops" in self._settings.kinds else 0
        if self._torch is not None:
            num_bytes += max(0, heap_bytes() - self._start_heap_bytes)
        return num_bytes

    def abandon(self) -> None:
        """Stops recording after something went wrong with it; nothing is kept."""
        self._trace.stop()
        if self._torch is not None:
            with contextlib.suppress(Exception):  # it may be what went wrong
                self._torch.stop()

    def end(self) -> dict[str, Callable[[str], None] | Iterator[bytes]]:
        """Stops recording.

        Returns:
            For each kind how to write it: a function that saves to a path, or the content of a file.
        """
        outcome: dict[str, Callable[[str], None] | Iterator[bytes]] = {}
        if not self._is_begun:
            return outcome
        if "ops" in self._settings.kinds:
            self._trace.stop()
            outcome["ops"] = trace_file(self._spans, self._trace.calls)
        if self._torch is not None:
            self._torch.stop()
            if self.num_steps:
                outcome["torch"] = self._torch.export_chrome_trace
        return outcome if self.num_steps else {}

    def _begin(self) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        settings = self._settings
        if "torch" in settings.kinds:
            self._start_heap_bytes = heap_bytes()
            num_warmup = settings.num_warmup_steps
            self._torch = profile(
                activities=[ProfilerActivity.CPU],
                schedule=schedule(wait=0, warmup=num_warmup, active=FOREVER, repeat=1)
                if num_warmup
                else None,
                record_shapes=settings.has_shapes,
                profile_memory=settings.has_memory,
                with_stack=settings.has_stacks,
                with_flops=settings.has_flops,
            )
            self._torch.start()
        if "ops" in settings.kinds:
            self._trace.start()

    def _keep(self, batch: ScheduledBatch) -> None:
        start_ns = self._step_start_ns
        duration_ns = time.perf_counter_ns() - start_ns
        num_tokens = sum(row.num_scheduled_tokens for row in batch.rows)
        self._spans.append(StepSpan(batch.step_id, start_ns, duration_ns, len(batch.rows), num_tokens))
        self.num_steps += 1


def trace_file(spans: Sequence[StepSpan], calls: Sequence[OpCall]) -> Iterator[bytes]:
    """The content of a trace of ops: one event per line, steps before ops, in pieces of some hundred lines."""
    pid, tid = os.getpid(), threading.main_thread().native_id or 0
    steps = (
        TraceEvent(
            f"step {span.step_id}",
            "step",
            span.start_ns / 1000,
            span.duration_ns / 1000,
            pid,
            tid,
            {"step": span.step_id, "rows": span.num_rows, "tokens": span.num_tokens},
        )
        for span in spans
    )
    ops = (
        TraceEvent(
            call.op,
            "op",
            call.start_ns / 1000,
            call.duration_ns / 1000,
            pid,
            tid,
            {"step": call.step_id, "provider": call.provider, "shapes": call.shapes},
        )
        for call in calls
    )
    events = itertools.chain(steps, ops)
    separator = b'{"displayTimeUnit":"ms","traceEvents":[\n'
    while lines := [msgspec.json.encode(event) for event in itertools.islice(events, LINES_PER_CHUNK)]:
        yield separator + b",\n".join(lines)
        separator = b",\n"
    yield b"\n]}\n"
