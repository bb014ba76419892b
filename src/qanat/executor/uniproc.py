"""The executor with one worker in the calling process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from qanat.config.resolved import ResolvedConfig
from qanat.core.batch import ScheduledBatch, StepOutput
from qanat.core.constraint import MatcherFactory
from qanat.core.errors import QanatError
from qanat.core.memory_plan import MemoryPlan
from qanat.core.profile import ProfileReport
from qanat.worker.worker import Worker


class UniprocExecutor:
    """An `Executor` that computes each batch before `execute` returns.

    Args:
        config: the resolved configuration.
        memory_plan: from `qanat.executor.planning`; None makes it from what is available now.
        matcher_factory: for requests whose output has a form; without it there may be none.

    Raises:
        CapacityError: the model or its cache does not fit.
        CheckpointError: the model folder cannot be served.
    """

    def __init__(
        self,
        config: ResolvedConfig,
        memory_plan: MemoryPlan | None = None,
        matcher_factory: MatcherFactory | None = None,
    ) -> None:
        worker = Worker(config, memory_plan, matcher_factory=matcher_factory)
        worker.load()
        self.memory_plan: MemoryPlan = worker.memory_plan
        self._worker: Worker | None = worker

    def execute(self, batch: ScheduledBatch) -> Future[StepOutput]:
        """Runs the step; the future is done, with its result or with the exception that ended it."""
        future: Future[StepOutput] = Future()
        worker = self._loaded()
        try:
            future.set_result(worker.execute(batch))
        except Exception as error:  # whoever asks for the result meets it
            future.set_exception(error)
        return future

    def op_table(self) -> list[str]:
        """Provider of each kernel, one line per op."""
        return self._worker.op_table() if self._worker is not None else []

    def start_profile(self) -> None:
        """Records steps from the next one on; see `Executor`."""
        self._loaded().profiler.start()

    def stop_profile(self, on_report: Callable[[ProfileReport | QanatError], None]) -> None:
        """Ends the profile; see `Executor`."""
        self._loaded().profiler.stop(on_report)

    def end_overdue_profile(self) -> None:
        """Ends a profile that has run for as long as it may."""
        if self._worker is not None and self._worker.profiler.is_running:
            self._worker.profiler.end_overdue()

    def check(self) -> None:
        """There is no other process that could have died."""

    def shutdown(self) -> None:
        """Releases the model and the cache."""
        self._worker = None

    def _loaded(self) -> Worker:
        if self._worker is None:
            raise RuntimeError("the executor was shut down")
        return self._worker
