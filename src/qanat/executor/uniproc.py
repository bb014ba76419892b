"""The executor with one worker in the calling process."""

from __future__ import annotations

from concurrent.futures import Future

from qanat.config.resolved import ResolvedConfig
from qanat.core.batch import ScheduledBatch, StepOutput
from qanat.core.memory_plan import MemoryPlan
from qanat.worker.worker import Worker


class UniprocExecutor:
    """An `Executor` that computes each batch before `execute` returns.

    Args:
        config: the resolved configuration.
        memory_plan: from `qanat.executor.planning`; None makes it from what is available now.

    Raises:
        CapacityError: the model or its cache does not fit.
        CheckpointError: the model folder cannot be served.
    """

    def __init__(self, config: ResolvedConfig, memory_plan: MemoryPlan | None = None) -> None:
        worker = Worker(config, memory_plan)
        worker.load()
        self.memory_plan: MemoryPlan = worker.memory_plan
        self._worker: Worker | None = worker

    def execute(self, batch: ScheduledBatch) -> Future[StepOutput]:
        """Runs the step; the future is done, with its result or with the exception that ended it."""
        future: Future[StepOutput] = Future()
        if self._worker is None:
            raise RuntimeError("the executor was shut down")
        try:
            future.set_result(self._worker.execute(batch))
        except Exception as error:  # whoever asks for the result meets it
            future.set_exception(error)
        return future

    def op_table(self) -> list[str]:
        """Provider of each kernel, one line per op."""
        return self._worker.op_table() if self._worker is not None else []

    def shutdown(self) -> None:
        """Releases the model and the cache."""
        self._worker = None
