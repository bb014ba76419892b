"""Times ops at the shapes of models, beside what the machine can do at most."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qanat.config.model_config import ModelConfig
from qanat.core.samples import Samples

if TYPE_CHECKING:
    from qanat.kernels.cases.case import Call, Case
    from qanat.kernels.native.limits import Limits

NATIVE, REFERENCE = "native", "reference"
MIN_SAMPLE_S = 200e-6
"""Calls that take less are timed several at once: the clock and the loop must not count."""
MIN_SAMPLES, MAX_SAMPLES = 5, 200
MAX_COPIES = 512


@dataclass(frozen=True)
class Runner:
    """An implementation to measure.

    Attributes:
        provider: "native" or "reference".
        instruction_set: of the native one; empty for the reference.
    """

    provider: str
    instruction_set: str = ""

    @property
    def name(self) -> str:
        """For tables."""
        return self.instruction_set or self.provider


@dataclass(frozen=True)
class KernelsWish:
    """What is measured.

    Attributes:
        models: shape by name.
        rows: of a step.
        kinds: of weights: keys of `qanat.kernels.cases.case.VALUE_TYPES`.
        runners: implementations.
        filters: a case is left out unless its name contains one of them; empty leaves none out.
        context_len: tokens that a request that decodes looks back at.
        working_set_bytes: streamed operands lie in copies that take as much together, so that no cache holds them.
        case_time_s: for one case and runner, warm-up not counted.
        num_threads: that compute.
    """

    models: Mapping[str, ModelConfig]
    rows: Sequence[int]
    kinds: Sequence[str]
    runners: Sequence[Runner]
    filters: Sequence[str] = ()
    context_len: int = 1024
    working_set_bytes: int = 512 * 2**20
    case_time_s: float = 0.3
    num_threads: int = 1


@dataclass(frozen=True)
class KernelResult:
    """One measurement.

    Attributes:
        model: name of the model.
        case: what was called.
        runner: by whom.
        seconds: of one call.
    """

    model: str
    case: Case
    runner: Runner
    seconds: Samples

    def least_s(self, limits: Limits) -> tuple[float, str]:
        """(the time that a call needs at least, what it waits for); (0, "") where the operands lie in a cache."""
        if not self.case.is_streamed:
            return 0.0, ""
        reading_s = self.case.read_bytes / limits.read_bytes_per_s.median
        rate = limits.best_rate(self.case.operands, self.runner.instruction_set)
        computing_s = self.case.macs / rate if rate else 0.0
        return (computing_s, self.case.operands) if computing_s > reading_s else (reading_s, "read")

    def as_json(self, limits: Limits | None) -> dict[str, Any]:
        """For a result file; rates are in bytes and multiply-adds per second."""
        least_s, binds = self.least_s(limits) if limits is not None else (0.0, "")
        return {
            "model": self.model,
            "op": self.case.op,
            "part": self.case.part,
            "rows": self.case.rows,
            "kind": self.case.kind,
            "provider": self.runner.provider,
            "instruction_set": self.runner.instruction_set,
            "median_s": self.seconds.median,
            "spread": self.seconds.spread,
            "num_samples": len(self.seconds.values),
            "bytes_per_s": self.case.read_bytes / self.seconds.median,
            "macs_per_s": self.case.macs / self.seconds.median,
            "share_of_limit": least_s / self.seconds.median if binds else None,
            "binds": binds,
        }


@dataclass
class KernelReport:
    """All measurements of a run.

    Attributes:
        results: in the order in which they were taken.
        limits: of the machine, measured before and after them; None where the native kernels are not built.
    """

    results: list[KernelResult] = field(default_factory=list)
    limits: Limits | None = None

    def as_json(self) -> dict[str, Any]:
        """For a result file."""
        from qanat.bench.bounds import limits_json

        limits = {"limits": limits_json(self.limits)} if self.limits is not None else {}
        return {**limits, "results": [result.as_json(self.limits) for result in self.results]}


def cases_of(wish: KernelsWish) -> list[tuple[str, Case]]:
    """(model, case) of everything that is to be measured; a shape that several models share comes once."""
    from qanat.kernels.cases.all import cases

    found: dict[tuple[str, int, str], tuple[str, Case]] = {}
    for name, model in wish.models.items():
        for kind in wish.kinds:
            for rows in wish.rows:
                for case in cases(model, rows, kind, wish.context_len):
                    if not wish.filters or any(part in case.name for part in wish.filters):
                        found.setdefault((case.name, rows, kind), (name, case))
    return list(found.values())


def run_kernels(
    wish: KernelsWish, chosen: Sequence[tuple[str, Case]], tick: Callable[[], None]
) -> KernelReport:
    """Measures; afterwards the native kernels are configured for this number of threads and the best instruction set.

    Args:
        wish: what is measured.
        chosen: of `cases_of`.
        tick: called after each case.
    """
    import torch

    from qanat.kernels.native.limits import measure_limits
    from qanat.kernels.native.module import configure, is_built

    num_before = torch.get_num_threads()
    torch.set_num_threads(wish.num_threads)
    configure(wish.num_threads)
    report = KernelReport()
    try:
        before = measure_limits(wish.working_set_bytes) if is_built() else None
        for name, case in chosen:
            for runner in wish.runners:
                configure(wish.num_threads, runner.instruction_set)
                report.results.append(KernelResult(name, case, runner, measure(case, runner, wish)))
            tick()
        configure(wish.num_threads)
        report.limits = before.joined(measure_limits(wish.working_set_bytes)) if before is not None else None
    finally:
        torch.set_num_threads(num_before)
        configure(wish.num_threads)
    return report


def measure(case: Case, runner: Runner, wish: KernelsWish) -> Samples:
    """Seconds of one call, several times."""
    import torch

    with torch.inference_mode():
        count = min(-(-wish.working_set_bytes // case.read_bytes), MAX_COPIES) if case.is_streamed else 1
        calls = case.prepare(runner.provider, count)
        return Samples.of(_timed(calls, wish.case_time_s))


def _timed(calls: Sequence[Call], case_time_s: float) -> Iterator[float]:
    """Every set of operands is used once before, within the same time."""
    start = time.perf_counter()
    num_warm = 0
    for call in calls:
        call()
        num_warm += 1
        if time.perf_counter() - start > case_time_s:
            break
    per_call_s = (time.perf_counter() - start) / num_warm
    per_sample = max(1, int(MIN_SAMPLE_S / per_call_s))
    position, spent_s, num_samples = 0, 0.0, 0
    while num_samples < MIN_SAMPLES or (spent_s < case_time_s and num_samples < MAX_SAMPLES):
        some = [calls[(position + index) % len(calls)] for index in range(per_sample)]
        position += per_sample
        start = time.perf_counter()
        for call in some:
            call()
        taken_s = time.perf_counter() - start
        spent_s, num_samples = spent_s + taken_s, num_samples + 1
        yield taken_s / per_sample
