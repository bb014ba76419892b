"""The executor with one worker in the calling process."""

from __future__ import annotations

from qanat.config.resolved import ResolvedConfig
from qanat.core.batch import ScheduledBatch, StepOutput
from qanat.core.constraint import MatcherFactory
from qanat.core.memory_plan import MemoryPlan
from qanat.executor.own_worker import OwnWorker
from qanat.executor.step_thread import Pending
from qanat.worker.worker import Worker


class UniprocExecutor(OwnWorker):
    """An `Executor` that computes each batch before `execute` returns, or in a thread where steps overlap.

    Args:
        config: the resolved configuration.
        memory_plan: from `qanat.executor.planning`; None makes it from what is available now.
        matcher_factory: for requests whose output has a form; without it there may be none.

    Raises:
        CapacityError: the model or its cache does not fit.
        CheckpointError: the model folder cannot be served.
    """

    collective_s = 0.0

    def __init__(
        self,
        config: ResolvedConfig,
        memory_plan: MemoryPlan | None = None,
        matcher_factory: MatcherFactory | None = None,
    ) -> None:
        super().__init__(config.scheduler.is_overlapped)
        worker = Worker(config, memory_plan, matcher_factory=matcher_factory)
        try:
            self._steps.call(worker.load)
        except BaseException:
            self._steps.stop()
            raise
        self.memory_plan: MemoryPlan = worker.memory_plan
        self._worker: Worker | None = worker

    def execute(self, batch: ScheduledBatch) -> Pending[StepOutput]:
        """Runs the step; see `Executor`."""
        worker = self._loaded()
        return self._steps.submit(lambda: worker.execute(batch))

    def check(self) -> None:
        """There is no other process that could have died."""

    def shutdown(self) -> None:
        """Releases the model and the cache."""
        self._steps.stop()
        self._worker = None
