"""Whatever arrives, aborts, expires, fails or is preempted, in pools of any size: the promises hold.

After every step `StepLoop` checks the cache and `FakeExecutor` the batch: budget, rows, ownership and contents
of every block and state. Here the ends are checked, and the rules that span steps.
"""

from __future__ import annotations

from hypothesis import given, settings

from qanat.core.batch import ScheduledBatch
from qanat.core.errors import ContextLengthError, QueueFullError
from qanat.core.request import FinishReason, Request
from qanat.scheduler.prefill_pace import MIN_PREFILL_TOKENS
from tests.sim.workloads import Arrival, Workload, workloads
from tests.support.fake_model import undisturbed_output
from tests.support.step_loop import StepLoop, make_request

MAX_STEPS = 20_000


class Simulation:
    """One workload, run to its end."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.loop = StepLoop(
            num_blocks=workload.num_blocks,
            num_states=workload.num_states,
            num_checkpoints=workload.num_checkpoints,
            block_size=workload.block_size,
            max_draft_tokens=workload.max_draft_tokens,
            overlap_depth=workload.overlap_depth,
            policy=workload.policy,
            max_num_seqs=workload.max_num_seqs,
            max_num_batched_tokens=workload.max_num_batched_tokens,
            long_prefill_token_threshold=workload.long_prefill_token_threshold,
            is_chunked_prefill_enabled=workload.is_chunked_prefill_enabled,
            max_decode_stall_s=workload.max_decode_stall_s,
            max_waiting_requests=workload.max_waiting_requests,
            max_queue_wait_s=workload.max_queue_wait_s,
            max_model_len=300,
        )
        for _ in range(4):
            self.loop.scheduler.observe_step(1000, 10.0)
        self.loop.executor.errors = {
            f"r{index}": arrival.error_at
            for index, arrival in enumerate(workload.arrivals)
            if arrival.error_at is not None
        }
        self.refused: set[str] = set()
        self.actions: dict[int, list[tuple[str, str]]] = {}
        self.num_forced = 0
        self.first_admissions: dict[str, list[int]] = {}  # by owner
        self.last_admission = -(10**9)

    def run(self) -> None:
        step, pending = 0, list(enumerate(self.workload.arrivals))
        next_arrival = pending[0][1].gap
        while pending or self.loop.scheduler.has_work or self.loop.in_flight:
            assert step < MAX_STEPS, f"starved: {self.loop.scheduler.stats()}"
            while pending and next_arrival <= step:
                index, arrival = pending.pop(0)
                self.arrive(index, arrival, step)
                next_arrival = step + (pending[0][1].gap if pending else 0)
            for action, request_id in self.actions.pop(step, []):
                self.act(action, request_id)
            self.check_step(step)
            step += 1

    def arrive(self, index: int, arrival: Arrival, step: int) -> None:
        request = self.request(index, arrival)
        try:
            self.loop.add(request)
        except (ContextLengthError, QueueFullError):
            self.refused.add(request.request_id)
            return
        if arrival.abort_after is not None:
            for _ in range(1 + arrival.is_aborted_twice):
                self.actions.setdefault(step + arrival.abort_after, []).append(("abort", request.request_id))
        if arrival.preempt_after is not None:
            self.actions.setdefault(step + arrival.preempt_after, []).append(("preempt", request.request_id))

    def request(self, index: int, arrival: Arrival) -> Request:
        now_s = self.loop.clock.now_s
        num_common = min(arrival.num_common_tokens, arrival.num_prompt_tokens)
        common = [(arrival.family + 3 * place) % 83 for place in range(num_common)]
        own = [(index + 7 * place) % 89 for place in range(num_common, arrival.num_prompt_tokens)]
        request = make_request(
            f"r{index}",
            common + own,
            arrival.max_tokens,
            priority=arrival.priority,
            min_tokens=min(arrival.min_tokens, arrival.max_tokens),
            stop_token_ids=[10 * k for k in range(arrival.num_stop_tokens)],
            prompt_logprobs=0 if arrival.wants_prompt_logprobs else None,
            arrival_time_s=now_s,
            owner=str(arrival.owner % self.workload.num_owners),
            deadline_s=after(now_s, arrival.deadline_s),
            queue_deadline_s=after(now_s, arrival.queue_deadline_s),
            first_token_deadline_s=after(now_s, arrival.first_token_deadline_s),
            request_seed=index,
            choice_index=index % 3,
            boundaries=[num_common],
        )
        # A continuation carries the first tokens of the output that it would have anyway.
        whole = undisturbed_output(request, self.loop.executor.vocab_size)
        if arrival.num_prior_output < len(whole):
            request.output_token_ids = whole[: arrival.num_prior_output]
        return request

    def act(self, action: str, request_id: str) -> None:
        if action == "abort":
            self.loop.abort(request_id)
        else:
            self.num_forced += self.loop.scheduler.preempt(request_id)

    def check_step(self, step: int) -> None:
        """S3: prefill beside decodes is bounded. S4: no preemption soon after an admission. S10: owners by arrival."""
        workload, loop = self.workload, self.loop
        before = loop.scheduler.stats().num_preemptions
        batch = loop.step()
        if loop.scheduler.stats().num_preemptions > before and workload.max_draft_tokens == 0:
            assert step - self.last_admission > workload.block_size
        if batch is None:
            return
        if batch.new_rows:
            self.last_admission = step
        if workload.is_chunked_prefill_enabled and workload.max_decode_stall_s == 0.0:
            self.check_stall(batch)
        for new in batch.new_rows:
            request = loop.requests[new.request_id]
            if request.num_preemptions == 0:
                self.first_admissions.setdefault(request.owner, []).append(int(new.request_id[1:]))
        # Where prefixes are reused, who waits for another's prefix is passed by others.
        if workload.policy == "fcfs" and workload.num_checkpoints is None:
            assert all(numbers == sorted(numbers) for numbers in self.first_admissions.values())

    def check_stall(self, batch: ScheduledBatch) -> None:
        new_rows = {new.row for new in batch.new_rows}
        has_decode = batch.rows[0].row not in new_rows and batch.rows[0].num_scheduled_tokens == 1
        num_prefill = sum(row.num_scheduled_tokens for row in batch.rows if row.num_scheduled_tokens > 1)
        assert not has_decode or num_prefill <= MIN_PREFILL_TOKENS

    def check_ends(self) -> None:
        self.loop.check_idle()
        assert len(self.loop.ends) + len(self.refused) == len(self.workload.arrivals)
        for request_id, request in self.loop.requests.items():
            reason = self.loop.ends[request_id].finish_reason
            tokens = self.loop.tokens[request_id]
            expected = undisturbed_output(request, self.loop.executor.vocab_size)
            scored = [entry.token_ids[0] for entry in self.loop.prompt_logprobs[request_id]]
            if request.sampling.prompt_logprobs is None:
                assert scored == []
            if reason in (FinishReason.STOP, FinishReason.LENGTH):
                assert tokens == expected
                if request.sampling.prompt_logprobs is not None:
                    assert scored == request.prompt_token_ids[1:]
            else:
                assert tokens == expected[: len(tokens)]
                assert scored == request.prompt_token_ids[1 : 1 + len(scored)]
            assert request.output_token_ids == tokens


def after(now_s: float, seconds: float | None) -> float | None:
    return None if seconds is None else now_s + seconds


@settings(max_examples=120, deadline=None)
@given(workloads(is_crowded=False))
def test_every_promise_holds_under_random_load(workload: Workload) -> None:
    simulation = Simulation(workload)
    simulation.run()
    simulation.check_ends()


@settings(max_examples=120, deadline=None)
@given(workloads(is_crowded=True))
def test_every_promise_holds_when_requests_must_give_way(workload: Workload) -> None:
    simulation = Simulation(workload)
    simulation.run()
    simulation.check_ends()
