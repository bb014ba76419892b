"""The engine's loop: schedule, execute, update. One round fits one screen."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from qanat.core.batch import ScheduledBatch, StepOutput
from qanat.core.errors import QanatError
from qanat.core.graph_counts import GraphCounter
from qanat.core.outputs import RequestOutput
from qanat.core.profile import ProfileReport
from qanat.core.request import FinishReason, Request
from qanat.engine.form_preparation import FormPreparation
from qanat.engine.prefix_store import PrefixStore
from qanat.executor.base import Executor, StepResult
from qanat.scheduler.scheduler import Scheduler
from qanat.scheduler.stats import SchedulerStats

logger = logging.getLogger(__name__)

MAX_FAILURES_IN_A_ROW = 3
"""After so many failed steps without one that succeeded, the process ends: a restart may help, going on does not."""

MAX_NAMED = 100
"""So many requests are named in one line of the log."""


@dataclass(frozen=True)
class _Step:
    """A step on its way."""

    batch: ScheduledBatch
    output: StepResult
    start_s: float


class EngineCore:
    """Owns the scheduler and drives the executor. Not thread-safe: one thread calls everything.

    Args:
        scheduler: decides what each step computes; where its steps overlap, the next one before this one's results.
        executor: computes it.
        clock: monotonic seconds.
        forms: has forms compiled before their requests enter the queue; without, the executor compiles them.
        prefixes: keeps cached prefixes on disk; None for nothing.

    Attributes:
        num_steps: that have succeeded.
        is_keeping: prefixes are being written, and there are more of them.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        clock: Callable[[], float] = time.monotonic,
        forms: FormPreparation | None = None,
        prefixes: PrefixStore | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._clock = clock
        self._forms = forms
        self._prefixes = prefixes
        self._num_ahead = int(scheduler.is_overlapped)
        self._in_flight: deque[_Step] = deque()
        self._result_s = -math.inf
        self._ended: list[RequestOutput] = []
        self._num_failures = 0
        self._step_s = 0.0
        self._graphs = GraphCounter()
        self.num_steps = 0
        self.is_keeping = False

    @property
    def has_work(self) -> bool:
        """True while a step would do anything or an output waits to be collected."""
        has_news = self._forms is not None and self._forms.has_news
        return self._scheduler.has_work or bool(self._in_flight) or bool(self._ended) or has_news

    @property
    def is_preparing(self) -> bool:
        """True while any request waits for its form, which will be work then."""
        return self._forms is not None and self._forms.is_waiting

    def await_forms(self, timeout_s: float) -> None:
        """Returns once a form has been compiled that a request waits for, or after the time."""
        if self._forms is not None:
            self._forms.wait(timeout_s)

    def idle(self) -> None:
        """To be called when nothing has been asked for a while: what takes time once is done then."""
        if self._forms is not None:
            self._forms.warm_up()
        if self._prefixes is not None:
            self.is_keeping = self._prefixes.write_next()

    def check(self) -> None:
        """To be called between steps, and every second or so while there are none.

        Raises:
            EngineDeadError: a worker has died, so that no later step can succeed.
        """
        self._executor.check()

    def add(self, request: Request, failure: QanatError | None = None) -> None:
        """Admits a request to the queue, once its form is compiled; a refusal becomes its terminal output.

        Args:
            request: what is to be computed.
            failure: what became of its form meanwhile, if that is known to be bad.
        """
        if self._prefixes is not None:
            self._prefixes.news()
            self.is_keeping = False
        try:
            if failure is not None:
                raise failure
            if self._forms is None or self._forms.hold(request):
                self._scheduler.add(request)
        except QanatError as error:
            self._ended.append(
                RequestOutput(
                    request_id=request.request_id,
                    finish_reason=FinishReason.ERROR,
                    error_code=error.code,
                    error_message=error.message,
                    error_param=error.param or "",
                    retry_after_s=error.retry_after_s,
                )
            )

    def abort(self, request_id: str) -> None:
        """Ends a request at once and frees what it holds; unknown ids are ignored."""
        output = self._scheduler.abort(request_id)
        if self._forms is not None and self._forms.cancel(request_id):
            output = RequestOutput(request_id=request_id, finish_reason=FinishReason.ABORT)
        if output is not None:
            self._ended.append(output)

    def step(self) -> list[RequestOutput]:
        """One scheduling round; returns what there is to report, terminal outputs of aborts included."""
        if self._forms is None:
            return self._step()
        for request, failure in self._forms.take():
            self.add(request, failure)
        outputs = self._step()
        for output in outputs:
            if output.finish_reason is not None:
                self._forms.release(output.request_id)
        return outputs

    def _step(self) -> list[RequestOutput]:
        outputs, self._ended = self._ended + self._scheduler.expire(), []
        batch = self._scheduler.schedule()
        if batch is not None:
            start_s = self._clock()
            self._in_flight.append(_Step(batch, self._executor.execute(batch), start_s))
            if len(self._in_flight) <= self._num_ahead:
                return outputs
        if not self._in_flight:
            return outputs
        step = self._in_flight.popleft()
        try:
            output = step.output.result()
            news = self._scheduler.update(step.batch, output)
        except Exception as error:
            return outputs + self._give_up(error)
        self._num_failures = 0
        self._observe(step, output)
        return outputs + news

    def _observe(self, step: _Step, output: StepOutput) -> None:
        """Counts a step. One that was given while another computed began when that had ended."""
        now_s = self._clock()
        spent_s = now_s - max(step.start_s, self._result_s)
        self._result_s = now_s
        self._step_s += spent_s
        if output.graph is not None:
            self._graphs.add(output.graph)
        num_prefill_tokens = _num_prefill_tokens(step.batch)
        self._scheduler.observe_step(num_prefill_tokens, spent_s)
        if not num_prefill_tokens:
            self._scheduler.observe_decode(output, spent_s)
        self.num_steps += 1

    def _give_up(self, error: Exception) -> list[RequestOutput]:
        """Ends all requests after a step that failed; what comes later is served, unless steps keep failing."""
        # What was given meanwhile is not for anybody, but must not meet what comes.
        for step in self._in_flight:
            step.output.exception()
        self._in_flight.clear()
        self._num_failures += 1
        if self._num_failures >= MAX_FAILURES_IN_A_ROW:
            raise error
        if isinstance(error, QanatError):
            ended = self._scheduler.fail_all(error.code, error.message)
        else:
            message = "The step that computed this request failed; the server's log has the details."
            ended = self._scheduler.fail_all(QanatError.code, message)
        logger.error("A step failed; all requests end with an error: %s", _named(ended), exc_info=error)
        return ended

    def reset_prefixes(self) -> None:
        """Forgets all cached prefixes, those on disk that this model could load included.

        Raises:
            PrefixesInUseError: requests wait or run.
        """
        self._scheduler.reset_prefixes()
        if self._prefixes is not None:
            self._prefixes.clear()

    def start_profile(self) -> None:
        """Records steps from the next one on.

        Raises:
            ProfilerStateError, ProfileWriteError: see `Executor.start_profile`.
        """
        self._executor.start_profile()

    def stop_profile(self, on_report: Callable[[ProfileReport | QanatError], None]) -> None:
        """Ends the profile; `on_report` is called, maybe from another thread, once its files are written.

        Raises:
            ProfilerStateError: there is no profile.
        """
        self._executor.stop_profile(on_report)

    def end_overdue_profile(self) -> None:
        """Ends a profile that has run for as long as it may; to be called every second or so."""
        self._executor.end_overdue_profile()

    def stats(self) -> SchedulerStats:
        """Counters and gauges of the scheduler, and where the time of steps went."""
        stats = self._scheduler.stats()
        return msgspec.structs.replace(
            stats,
            prefixes=stats.prefixes if self._prefixes is None else self._prefixes.stats(stats.prefixes),
            step_s=self._step_s,
            collective_s=self._executor.collective_s,
            graphs=self._graphs.counts(),
        )

    def shutdown(self, timeout_s: float | None = None) -> None:
        """Releases the executor; prefixes that are kept on disk go there before.

        Args:
            timeout_s: so long they may take; None for as long as it takes.
        """
        if self._forms is not None:
            self._forms.shutdown()
        prefixes, self._prefixes = self._prefixes, None
        if prefixes is not None:
            try:
                prefixes.finish(timeout_s)
            except (QanatError, OSError, RuntimeError) as error:
                logger.warning("The rest of the prefixes is not kept on disk: %s", error)
        self._executor.shutdown()


def _num_prefill_tokens(batch: ScheduledBatch) -> int:
    return sum(row.num_scheduled_tokens for row in batch.rows if row.num_scheduled_tokens > 1)


def _named(outputs: list[RequestOutput]) -> str:
    """Ids for the log; those of the server hold the X-Request-Id."""
    names = [output.request_id for output in outputs]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
