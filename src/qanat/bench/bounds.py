"""The machine's limit beside a result of a model: measured in the same run, computed from what a step must read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qanat.config.machine import read_machine
from qanat.core.decision import Decision

if TYPE_CHECKING:
    from qanat.entrypoints.llm import LLM
    from qanat.kernels.native.limits import Limits
    from qanat.worker.step_cost import StepCost

READ_SHARE_OF_MEMORY = 0.125
"""Memory that the measurement of the read rate may take, of what is available then."""


@dataclass(frozen=True)
class Bound:
    """The least time that a step can take.

    Attributes:
        seconds: of the step.
        binds: what it waits for: "read bandwidth" or "multiply-adds".
        cost: what the step must read and compute.
    """

    seconds: float
    binds: str
    cost: StepCost


def bound(cost: StepCost, limits: Limits) -> Bound:
    """The larger of what reading and what computing take, on the instruction set that the kernels run on."""
    from qanat.kernels.native.limits import FLOAT, INT8
    from qanat.kernels.native.module import native

    reading_s = cost.total_bytes / limits.read_bytes_per_s.median
    chosen = native().instruction_set()
    float_rate, int8_rate = limits.best_rate(FLOAT, chosen), limits.best_rate(INT8, chosen)
    computing_s = cost.float_macs / float_rate if float_rate else 0.0
    computing_s += cost.int8_macs / int8_rate if int8_rate else 0.0
    if computing_s > reading_s:
        return Bound(computing_s, "multiply-adds", cost)
    return Bound(reading_s, "read bandwidth", cost)


def measured_limits(root: Path = Path("/")) -> tuple[Limits | None, list[Decision]]:
    """The machine's limits with the threads that the kernels have; None, with the reason, where they are not built.

    The memory that is read is a share of what is available now: a model that is loaded has taken the rest.

    Args:
        root: where the system's files lie.
    """
    from qanat.kernels.native.limits import DEFAULT_READ_BYTES, measure_limits
    from qanat.kernels.native.module import is_built, why_not

    if not is_built():
        return None, [Decision("limits", None, "not measured", why_not())]
    size_bytes = min(DEFAULT_READ_BYTES, int(read_machine(root).available_bytes * READ_SHARE_OF_MEMORY))
    return measure_limits(size_bytes), []


def limits_json(limits: Limits) -> dict[str, Any]:
    """The limits for a result file: medians in bytes and multiply-adds per second, and their spreads."""
    return {
        "num_threads": limits.num_threads,
        "read_size_bytes": limits.read_size_bytes,
        "read_bytes_per_s": limits.read_bytes_per_s.median,
        "read_spread": limits.read_bytes_per_s.spread,
        "macs_per_s": {
            f"{name} {operands}": samples.median for (name, operands), samples in limits.macs_per_s.items()
        },
    }


def decode_bound(llm: LLM, limits: Limits, num_requests: int, context_len: int) -> Bound:
    """Of a decode step of so many requests, each with so many tokens behind it."""
    from qanat.worker.step_cost import StepShape, step_cost

    return bound(step_cost(llm.config, llm.memory_plan, StepShape(num_requests, 1, context_len)), limits)


def prefill_bound(llm: LLM, limits: Limits, num_requests: int, num_rows: int) -> Bound:
    """Of computing so many prompts of so many tokens."""
    from qanat.worker.step_cost import StepShape, step_cost

    return bound(step_cost(llm.config, llm.memory_plan, StepShape(num_requests, num_rows, num_rows)), limits)
