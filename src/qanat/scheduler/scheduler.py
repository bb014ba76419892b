"""Continuous batching: requests come in, steps go out, results come back.

The numbered rules are in `docs/hybrid-cache.md`; comments and tests cite them as S1, S2, ...
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from qanat.cache.manager import HybridCacheManager
from qanat.config.resolved import SchedulerLimits
from qanat.core.batch import RowOutput, ScheduledBatch, StepOutput
from qanat.core.errors import DeadlineError, IntegrityError, NumericError, PrefixesInUseError
from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason, Request, RequestStatus
from qanat.core.speculation import SpeculationCounts
from qanat.scheduler.admission import check_cache, check_request
from qanat.scheduler.deadlines import Deadlines, Missed
from qanat.scheduler.draft_lengths import DraftLengths
from qanat.scheduler.drain_pace import DrainPace
from qanat.scheduler.forecast import Forecast
from qanat.scheduler.live_request import LiveRequest, RunningRequest
from qanat.scheduler.output_bill import OutputBill
from qanat.scheduler.planner import StepPlan, StepPlanner
from qanat.scheduler.prefill_pace import PrefillPace
from qanat.scheduler.queue_bounds import QueueBounds
from qanat.scheduler.results import Progress, check_row, new_prompt_logprobs, take_tokens
from qanat.scheduler.running_set import RunningSet
from qanat.scheduler.stats import SchedulerStats
from qanat.scheduler.waiting_queue import WaitingQueue


class Scheduler:
    """Decides what each step computes, and keeps every request's account until its one terminal output.

    Not thread-safe: one thread calls everything. A step may be scheduled before the results of the one before are
    known: a row whose next token is still being computed is then left out, or goes ahead where the limits say that
    steps overlap.

    Args:
        limits: token budget, rows, window, policy, queue bounds.
        cache: owns blocks and states; used by nobody else.
        clock: monotonic seconds, the clock of the requests' arrivals and deadlines.
        drafts: how many tokens are drafted for whom; None without speculation.

    Raises:
        CapacityError: the cache is so small that nothing can run in it.
    """

    def __init__(
        self,
        limits: SchedulerLimits,
        cache: HybridCacheManager,
        clock: Callable[[], float],
        drafts: DraftLengths | None = None,
    ) -> None:
        check_cache(cache)
        self._limits = limits
        self._cache = cache
        self._clock = clock
        self._live: dict[str, LiveRequest] = {}
        self._waiting = WaitingQueue()
        self._running = RunningSet(cache, limits.max_num_seqs)
        self._pace = PrefillPace()
        self._drain_pace = DrainPace()
        self._deadlines = Deadlines(cache, self._pace)
        self._bill = OutputBill(self._waiting)
        self._drafts = drafts
        self._planner = StepPlanner(
            limits, cache, self._running, self._waiting, self._pace, self._deadlines, self._bill, drafts
        )
        forecast = Forecast(self._waiting, self._running, self._pace, self._drain_pace, limits.max_num_seqs)
        self._bounds = QueueBounds(limits, self._waiting, self._running, forecast)
        self._updated: StepPlan | None = None
        self._in_flight: dict[int, tuple[ScheduledBatch, StepPlan]] = {}
        self._num_added = 0
        self._next_step_id = 0

    @property
    def num_waiting(self) -> int:
        """Requests in the queue, preempted ones and those parked beside it included."""
        return len(self._waiting) + len(self._planner.parking)

    @property
    def num_running(self) -> int:
        """Requests in the batch."""
        return len(self._running)

    @property
    def is_overlapped(self) -> bool:
        """True if a step may be asked for before the one before is answered, and then goes ahead."""
        return self._limits.is_overlapped

    @property
    def has_work(self) -> bool:
        """True while any request has not ended."""
        return bool(self._live)

    def stats(self) -> SchedulerStats:
        """Gauges and counters of this moment."""
        cache = self._cache
        return SchedulerStats(
            num_running=len(self._running),
            num_waiting=self.num_waiting,
            num_waiting_tokens=self._waiting.num_tokens,
            num_preemptions=self._planner.num_preemptions,
            num_free_blocks=cache.num_free_blocks,
            num_usable_blocks=cache.num_usable_blocks,
            num_free_states=cache.num_free_states,
            num_usable_states=cache.num_usable_states,
            cache_usage=cache.usage,
            state_usage=cache.state_usage,
            prefill_s_per_token=self._pace.s_per_token,
            speculation=SpeculationCounts() if self._drafts is None else self._drafts.counts(),
            prefixes=msgspec.structs.replace(
                cache.prefix_stats(), num_recomputed_tokens=self._planner.num_recomputed_tokens
            ),
        )

    def add(self, request: Request) -> None:
        """Queues a request, new or continued (its output is then not empty).

        Raises:
            InvalidRequestError: it is malformed.
            ContextLengthError: it can never fit the window, the cache or the step.
            QueueFullError: the queue is at its bound in requests, tokens or time.
            ValueError: a live request has the same id.
        """
        if request.request_id in self._live:
            raise ValueError(f"A request with the id {request.request_id!r} is already live.")
        check_request(request, self._limits, self._cache)
        live = LiveRequest(request, self._num_added, self._limits.policy == "priority")
        self._bounds.check(request, live.rank[0])
        self._num_added += 1
        self._live[request.request_id] = live
        request.status = RequestStatus.WAITING
        self._waiting.push(live)
        self._deadlines.add(live)

    def abort(self, request_id: str) -> RequestOutput | None:
        """Ends a request at once and frees what it holds; results on their way are ignored.

        Returns:
            Its terminal output, or None if there is no such request (any more).
        """
        live = self._live.get(request_id)
        return None if live is None else self._end(live, FinishReason.ABORT, self._clock())

    def preempt(self, request_id: str) -> bool:
        """Makes a running request give up its row, blocks and state; it recomputes prompt and output later.

        Returns:
            False if it is not running.
        """
        live = self._live.get(request_id)
        if live is None or live.running is None:
            return False
        self._planner.preempt(live.running)
        return True

    def schedule(self) -> ScheduledBatch | None:
        """The next step, None if there is nothing to compute. Tokens count as computed from here on."""
        if not self._live:
            return None
        now_s = self._clock()
        plan = self._planner.plan(now_s)
        self._drain_pace.observe(now_s, len(plan.new_rows), len(self._waiting) > 0)
        if not plan.rows:
            return None
        freed_rows, copies = self._running.take_freed_rows(), self._cache.take_copies()
        batch = ScheduledBatch(self._next_step_id, freed_rows, plan.new_rows, plan.rows, copies)
        self._in_flight[batch.step_id] = (batch, plan)
        self._next_step_id += 1
        return batch

    def update(self, batch: ScheduledBatch, output: StepOutput) -> list[RequestOutput]:
        """Takes in a step's results.

        Rows whose request has left meanwhile are ignored, and so are steps given up by `fail_all`.

        Raises:
            IntegrityError: the results do not answer the batch.
        """
        _, plan = self._in_flight.pop(batch.step_id, (None, None))
        if plan is None:
            return []
        if output.step_id != batch.step_id or len(output.rows) != len(plan.rows):
            raise IntegrityError(
                f"Step {batch.step_id} with {len(plan.rows)} rows was answered by step {output.step_id} with "
                f"{len(output.rows)} rows."
            )
        now_s = self._clock()
        if self._drafts is not None:
            self._updated = plan
            if plan.draft_length:
                _observe_drafts(self._drafts, plan, output)
            else:
                self._drafts.observe_plain(len(plan.decodes))
        outputs: list[RequestOutput] = []
        self._update_decodes(plan, output.rows, now_s, outputs)
        for (running, is_last), row_output in zip(plan.chunks, output.rows[len(plan.decodes) :], strict=True):
            if running.is_running:
                news = self._update_row(running, row_output, is_last, now_s)
                if news is not None:
                    outputs.append(news)
                if running.is_unindexed and running.is_running:
                    running.is_unindexed = False
                    self._cache.advance(running.request)
        return outputs

    def observe_step(self, num_prefill_tokens: int, duration_s: float) -> None:
        """Feeds the estimate behind the bound on decode stalls."""
        self._pace.observe(num_prefill_tokens, duration_s)

    def observe_decode(self, output: StepOutput, duration_s: float) -> None:
        """Feeds what the choice of draft lengths knows of costs: the step that `update` took in last had no prefill."""
        plan = self._updated
        if self._drafts is None or plan is None:
            return
        graph_s = output.graph.capture_s if output.graph is not None else 0.0
        step_s = duration_s - graph_s - output.draft_capture_s
        self._drafts.observe_step(len(plan.decodes), plan.draft_length, step_s, output.draft_s)

    def expire(self) -> list[RequestOutput]:
        """Ends every request that has missed a deadline, and those whose turn it is but who are bound to miss one."""
        outputs: list[RequestOutput] = []
        now_s = self._clock()
        while (found := self._deadlines.take_missed(now_s)) is not None:
            outputs.append(self._end_late(*found, now_s))
        while (live := self._waiting.peek()) is not None:
            missed = self._deadlines.missed(live, now_s)
            if missed is None:
                break
            outputs.append(self._end_late(live, missed, now_s))
        return outputs

    def fail_all(self, code: str, message: str) -> list[RequestOutput]:
        """Ends every live request with an error, as after the death of a worker; the scheduler is then empty.

        Args:
            code: stable code of the error.
            message: what went wrong and what to change.
        """
        now_s = self._clock()
        outputs = [
            self._end(live, FinishReason.ERROR, now_s, code, message) for live in list(self._live.values())
        ]
        # The worker may not have come as far as forgetting these rows.
        for batch, _ in self._in_flight.values():
            self._running.report_freed_again(batch.freed_rows)
        self._in_flight.clear()
        self._cache.forget_prefixes()  # nobody knows what the step has left there
        return outputs

    def reset_prefixes(self) -> None:
        """Forgets all cached prefixes.

        Raises:
            PrefixesInUseError: a request has not ended.
        """
        if self._live:
            raise PrefixesInUseError(
                f"{len(self._live)} requests wait or run, and may read from the prefix cache: reset it when they have "
                "ended."
            )
        self._cache.forget_prefixes()

    def _update_decodes(
        self, plan: StepPlan, rows: list[RowOutput], now_s: float, outputs: list[RequestOutput]
    ) -> None:
        """The leading rows. A token that ends nothing, by far the most common result, is handled in place."""
        for running, row_output in zip(plan.decodes, rows, strict=False):
            if not running.is_running:
                continue
            token_ids = row_output.token_ids
            if (
                len(token_ids) == 1
                and running.num_outputs_left > 1
                and token_ids[0] not in running.stop_token_ids
                and row_output.row == running.row
                and not row_output.error
            ):
                running.output_token_ids.append(token_ids[0])
                running.num_outputs_left -= 1
                running.num_uncomputed += 1
                live = running.live
                live.last_token_s = now_s
                live.num_prepaid -= 1
                if live.num_prepaid < 0:
                    self._bill.extend(live)
                request = running.request
                outputs.append(
                    RequestOutput(
                        request_id=request.request_id,
                        new_token_ids=token_ids,
                        logprobs=row_output.logprobs,
                        num_cached_tokens=request.num_cached_tokens,
                        num_drafted=live.num_drafted,
                        num_accepted=live.num_accepted,
                    )
                )
                continue
            news = self._update_row(running, row_output, True, now_s)
            if news is not None:
                outputs.append(news)

    def _update_row(
        self, running: RunningRequest, row_output: RowOutput, yields_output: bool, now_s: float
    ) -> RequestOutput | None:
        """Any other result of a row; None if there is nothing to tell."""
        check_row(running, row_output, yields_output)
        live, request = running.live, running.request
        if row_output.error:
            if row_output.error_code == NumericError.code:
                self._cache.distrust(request.request_id)
            return self._end(live, FinishReason.ERROR, now_s, row_output.error_code, row_output.error)
        progress = Progress(0)
        timing = report = None
        if yields_output and request.sampling.max_tokens == 0:
            progress = Progress(0, FinishReason.LENGTH)
        elif yields_output:
            progress = take_tokens(running, row_output.token_ids)
            live.num_prepaid -= progress.num_taken
            if live.num_prepaid < 0:
                self._bill.extend(live)
            live.last_token_s = now_s
            if live.first_token_s is None:
                live.first_token_s = now_s
                timing, report = live.timing(now_s), live.prefix_report
        prompt_logprobs = new_prompt_logprobs(running, row_output.prompt_logprobs)
        if not progress.num_taken and not prompt_logprobs and progress.finish_reason is None:
            return None
        if progress.finish_reason is not None:
            timing, report = live.timing(now_s), live.prefix_report
            self._forget(live)
        return RequestOutput(
            request_id=request.request_id,
            new_token_ids=row_output.token_ids[: progress.num_taken],
            logprobs=row_output.logprobs[: progress.num_taken],
            prompt_logprobs=prompt_logprobs,
            finish_reason=progress.finish_reason,
            stop_token_id=progress.stop_token_id,
            num_cached_tokens=request.num_cached_tokens,
            timing=timing,
            num_drafted=live.num_drafted,
            num_accepted=live.num_accepted,
            prefix=report,
        )

    def _end_late(self, live: LiveRequest, missed: Missed, now_s: float) -> RequestOutput:
        return self._end(live, FinishReason.ERROR, now_s, DeadlineError.code, missed.message, missed.param)

    def _end(
        self,
        live: LiveRequest,
        reason: FinishReason,
        now_s: float,
        code: str = "",
        message: str = "",
        param: str = "",
    ) -> RequestOutput:
        """Ends a request without new tokens; returns its terminal output."""
        self._forget(live)
        return RequestOutput(
            request_id=live.request.request_id,
            finish_reason=reason,
            error_code=code,
            error_message=message,
            error_param=param,
            num_cached_tokens=live.request.num_cached_tokens,
            timing=live.timing(now_s),
            num_drafted=live.num_drafted,
            num_accepted=live.num_accepted,
        )

    def _forget(self, live: LiveRequest) -> None:
        """The one place where a request stops being live: whatever it holds, in whichever queue it stands."""
        del self._live[live.request.request_id]
        if live.running is not None:
            self._running.leave(live.running)
        self._waiting.discard(live)
        self._planner.parking.discard(live)
        self._deadlines.discard(live)
        live.request.status = RequestStatus.FINISHED
        self._bill.close(live)
        if not self._live:
            self._waiting.settle()
            self._drain_pace.pause()


def _observe_drafts(drafts: DraftLengths, plan: StepPlan, output: StepOutput) -> None:
    """Tells the choice of lengths what became of this step's drafts; nobody waits for them any more."""
    for running, scheduled, row_output in zip(plan.decodes, plan.rows, output.rows, strict=False):
        running.num_unsure -= scheduled.max_draft_tokens
        if running.is_running and not row_output.error:
            num_accepted = max(0, len(row_output.token_ids) - 1)
            drafts.observe(running, scheduled.max_draft_tokens, row_output.num_drafted, num_accepted)
