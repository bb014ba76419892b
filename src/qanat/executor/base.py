"""What the engine asks of whatever runs its batches."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from qanat.core.batch import ScheduledBatch, StepOutput
from qanat.core.memory_plan import MemoryPlan


class Executor(Protocol):
    """Carries batches to workers. Batches are computed in the order in which they are given."""

    @property
    def memory_plan(self) -> MemoryPlan:
        """What the workers allocated, each of them."""
        ...

    def execute(self, batch: ScheduledBatch) -> Future[StepOutput]:
        """Starts a step; the result, or the exception that ended it, is in the future."""
        ...

    def op_table(self) -> list[str]:
        """Provider of each kernel, one line per op."""
        ...

    def shutdown(self) -> None:
        """Releases workers and memory; harmless when repeated."""
        ...
