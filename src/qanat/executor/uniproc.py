"""The executor with one worker in the calling process."""

from __future__ import annotations

from concurrent.futures import Future

from qanat.config.resolved import ResolvedConfig
from qanat.core.batch import ScheduledBatch, StepOutput
from qanat.core.constraint import MatcherFactory
from qanat.core.memory_plan import MemoryPlan
from qanat.executor.own_worker import OwnWorker
from qanat.worker.worker import Worker


class UniprocExecutor(OwnWorker):
    """An `Executor` that computes each batch before `execute` returns.

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

    def check(self) -> None:
        """There is no other process that could have died."""

    def shutdown(self) -> None:
        """Releases the model and the cache."""
        self._worker = None
