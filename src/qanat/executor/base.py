"""What the engine asks of whatever runs its batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from qanat.core.batch import ScheduledBatch, StepOutput
from qanat.core.errors import QanatError
from qanat.core.memory_plan import MemoryPlan
from qanat.core.prefix_entry import PrefixOrder
from qanat.core.profile import ProfileReport


class StepResult(Protocol):
    """What comes of a step, as a future tells it."""

    def done(self) -> bool:
        """True once the others do not wait."""
        ...

    def exception(self) -> BaseException | None:
        """Waits; what ended the step, None if it has a result."""
        ...

    def result(self) -> StepOutput:
        """Waits; the result, or the exception that ended the step."""
        ...


class Executor(Protocol):
    """Carries batches to workers. Batches are computed in the order in which they are given."""

    @property
    def memory_plan(self) -> MemoryPlan:
        """What the workers allocated, each of them."""
        ...

    @property
    def collective_s(self) -> float:
        """Seconds spent in exchanges between ranks since the start; 0 for one rank."""
        ...

    def execute(self, batch: ScheduledBatch) -> StepResult:
        """Starts a step.

        Where steps overlap, the caller may give the next one before it has the result of this one.

        After an `EngineDeadError` no step succeeds any more.
        """
        ...

    def op_table(self) -> list[str]:
        """Provider of each kernel, one line per op."""
        ...

    @property
    def is_keeping(self) -> bool:
        """True while a piece of the prefix cache is on its way to the disk."""
        ...

    def keep(self, order: PrefixOrder) -> bool:
        """Has every rank write, read or remove its share of a piece of the prefix cache, between steps.

        Returns:
            False if it was to be read and could not, on whatever rank.

        Raises:
            EngineDeadError: a worker has died.
        """
        ...

    def start_profile(self) -> None:
        """Records steps from the next one on.

        Raises:
            ProfilerStateError: a profile is recorded or written already, or profiling is switched off.
            ProfileWriteError: its folder cannot be written to.
        """
        ...

    def stop_profile(self, on_report: Callable[[ProfileReport | QanatError], None]) -> None:
        """Ends the profile; `on_report` is called, maybe from another thread, once its files are written.

        Raises:
            ProfilerStateError: there is no profile.
        """
        ...

    def end_overdue_profile(self) -> None:
        """Ends a profile that has run for as long as it may; costs nothing while there is none."""
        ...

    def check(self) -> None:
        """To be called between steps, and now and then while there is nothing to execute; takes microseconds.

        Raises:
            EngineDeadError: a worker has died.
        """
        ...

    def shutdown(self) -> None:
        """Releases workers and memory; harmless when repeated."""
        ...
