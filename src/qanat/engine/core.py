"""The engine's loop: schedule, execute, update. One round fits one screen."""

from __future__ import annotations

import time
from collections.abc import Callable

from qanat.core.batch import ScheduledBatch
from qanat.core.errors import QanatError
from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason, Request
from qanat.executor.base import Executor
from qanat.scheduler.scheduler import Scheduler
from qanat.scheduler.stats import SchedulerStats


class EngineCore:
    """Owns the scheduler and drives the executor. Not thread-safe: one thread calls everything.

    Args:
        scheduler: decides what each step computes.
        executor: computes it.
        clock: monotonic seconds.
    """

    def __init__(
        self, scheduler: Scheduler, executor: Executor, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._clock = clock
        self._ended: list[RequestOutput] = []
        self.num_steps = 0

    @property
    def has_work(self) -> bool:
        """True while a step would do anything or an output waits to be collected."""
        return self._scheduler.has_work or bool(self._ended)

    def add(self, request: Request) -> None:
        """Admits a request to the queue; a refusal becomes the request's terminal output."""
        try:
            self._scheduler.add(request)
        except QanatError as error:
            self._ended.append(
                RequestOutput(
                    request_id=request.request_id,
                    finish_reason=FinishReason.ERROR,
                    error_code=error.code,
                    error_message=error.message,
                )
            )

    def abort(self, request_id: str) -> None:
        """Ends a request at once and frees what it holds; unknown ids are ignored."""
        output = self._scheduler.abort(request_id)
        if output is not None:
            self._ended.append(output)

    def step(self) -> list[RequestOutput]:
        """One scheduling round; returns what there is to report, terminal outputs of aborts included."""
        outputs, self._ended = self._ended + self._scheduler.expire(), []
        batch = self._scheduler.schedule()
        if batch is None:
            return outputs
        start_s = self._clock()
        result = self._executor.execute(batch).result()
        self._scheduler.observe_step(_num_prefill_tokens(batch), self._clock() - start_s)
        self.num_steps += 1
        return outputs + self._scheduler.update(batch, result)

    def stats(self) -> SchedulerStats:
        """Counters and gauges of the scheduler."""
        return self._scheduler.stats()

    def shutdown(self) -> None:
        """Releases the executor."""
        self._executor.shutdown()


def _num_prefill_tokens(batch: ScheduledBatch) -> int:
    return sum(row.num_scheduled_tokens for row in batch.rows if row.num_scheduled_tokens > 1)
