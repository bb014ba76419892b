"""Scheduler, cache and fake executor in a loop that checks everything after each step."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from qanat.cache.manager import HybridCacheManager
from qanat.cache.prefix_cache import PrefixRules
from qanat.config.resolved import SchedulerLimits
from qanat.core.batch import ScheduledBatch, StepOutput, TokenLogprobs
from qanat.core.cache_spec import CacheRegion, CacheSpec
from qanat.core.outputs import RequestOutput
from qanat.core.request import Request
from qanat.core.sampling_params import SamplingParams
from qanat.core.timeouts import Timeouts
from qanat.scheduler.draft_lengths import DraftLengths
from qanat.scheduler.scheduler import Scheduler
from tests.support.fake_clock import FakeClock
from tests.support.fake_executor import FakeExecutor

DEADLINES = {
    "queue_s": "queue_deadline_s",
    "first_token_s": "first_token_deadline_s",
    "total_s": "deadline_s",
}


def small_spec(block_size: int = 16, *, has_states: bool = True) -> CacheSpec:
    """One attention layer, and one recurrent layer if wanted."""
    regions = [CacheRegion("kv_blocks", "block", 1, (2, block_size, 1, 8), "float32", 2)]
    if has_states:
        regions.append(CacheRegion("recurrent_state", "state", 1, (1, 8, 8), "float32", 0))
    return CacheSpec(block_size=block_size, regions=tuple(regions))


def make_request(request_id: str, prompt: int | list[int], max_tokens: int = 8, **fields: object) -> Request:
    """A request; a prompt given as a length is made of tokens that differ between requests.

    Fields of SamplingParams and of Request may be given by name, and deadlines in place of `timeouts`.
    """
    if isinstance(prompt, int):
        base = sum(map(ord, request_id))
        prompt = [(base + 7 * index) % 89 for index in range(prompt)]
    # The scheduler reads stop tokens from the request, where the front end has put both kinds.
    names = set(SamplingParams.__struct_fields__) - {"stop_token_ids"}
    sampling_fields = {name: fields.pop(name) for name in list(fields) if name in names}
    seed = fields.pop("request_seed", 1)
    arrival_s = fields.get("arrival_time_s", 0.0)
    spans: dict[str, float] = {}
    for part, name in DEADLINES.items():
        deadline_s = fields.pop(name, None)
        if deadline_s is not None:
            spans[part] = deadline_s - arrival_s  # type: ignore[operator]
    if spans:
        fields["timeouts"] = Timeouts(**spans)
    sampling = SamplingParams(max_tokens=max_tokens, **sampling_fields)  # type: ignore[arg-type]
    return Request(
        request_id=request_id,
        prompt_token_ids=prompt,
        sampling=sampling,
        seed=seed,
        **fields,  # type: ignore[arg-type]
    )


class StepLoop:
    """Runs requests to their ends and keeps what came out of each.

    Args:
        num_blocks, num_states: usable ones, the reserved id not counted; num_states 0 means no recurrent layers.
        num_checkpoints: reuses prefixes, with places for so many states; None reuses nothing.
        overlap_depth: how many steps may be in flight when the next is scheduled; with any, rows go ahead.
        max_draft_tokens: drafts of each request in a step, of which none to all are right.
        limits: fields of SchedulerLimits by name.
    """

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        num_states: int | None = None,
        num_checkpoints: int | None = None,
        is_by_owner: bool = False,
        block_size: int = 16,
        overlap_depth: int = 0,
        max_draft_tokens: int = 0,
        **limits: object,
    ) -> None:
        base = SchedulerLimits(max_num_batched_tokens=256, max_num_seqs=8, max_model_len=4096)
        self.limits = replace(base, is_overlapped=overlap_depth > 0, **limits)  # type: ignore[arg-type]
        num_states = self.limits.max_num_seqs if num_states is None else num_states
        spec = small_spec(block_size, has_states=num_states > 0)
        self.clock = FakeClock()
        rules = PrefixRules(
            is_by_owner=is_by_owner,
            num_checkpoints=num_checkpoints or 0,
            keeps_output_states=not max_draft_tokens,
        )
        self.cache = HybridCacheManager(
            spec,
            num_blocks + 1,
            num_states + 1 if num_states else 0,
            None if num_checkpoints is None else rules,
        )
        lengths = DraftLengths(max_draft_tokens, is_adaptive=False) if max_draft_tokens else None
        self.scheduler = Scheduler(self.limits, self.cache, self.clock, lengths)
        self.executor = FakeExecutor(
            num_blocks=num_blocks + 1,
            num_states=num_states + 1 if num_states else 0,
            num_checkpoints=num_checkpoints or 0,
            block_size=block_size,
            max_num_seqs=self.limits.max_num_seqs,
            max_num_batched_tokens=self.limits.max_num_batched_tokens,
        )
        self.overlap_depth = overlap_depth
        self.in_flight: deque[tuple[ScheduledBatch, StepOutput]] = deque()
        self.requests: dict[str, Request] = {}
        self.tokens: dict[str, list[int]] = {}
        self.num_prior: dict[str, int] = {}
        self.prompt_logprobs: dict[str, list[TokenLogprobs]] = {}
        self.ends: dict[str, RequestOutput] = {}

    def add(self, request: Request) -> None:
        self.scheduler.add(request)
        self.requests[request.request_id] = request
        self.tokens[request.request_id] = list(request.output_token_ids)
        self.num_prior[request.request_id] = request.num_output_tokens
        self.prompt_logprobs[request.request_id] = []

    def abort(self, request_id: str) -> None:
        output = self.scheduler.abort(request_id)
        if output is not None:
            self.take([output])

    def take(self, outputs: list[RequestOutput]) -> None:
        """Keeps outputs; fails on news of a request that has ended, and so on a second terminal output."""
        for output in outputs:
            request_id = output.request_id
            assert request_id not in self.ends, f"{output} after {self.ends[request_id]}"
            self.tokens[request_id] += output.new_token_ids
            self.prompt_logprobs[request_id] += output.prompt_logprobs
            num_before = len(self.tokens[request_id]) - len(output.new_token_ids)
            is_first = bool(output.new_token_ids) and num_before == self.num_prior[request_id]
            assert (output.timing is not None) == (is_first or output.finish_reason is not None)
            if output.finish_reason is not None:
                self.ends[request_id] = output

    def step(self, duration_s: float = 0.01) -> ScheduledBatch | None:
        """One round of the engine's loop; returns what was scheduled."""
        self.take(self.scheduler.expire())
        batch = self.scheduler.schedule()
        self.cache.check_integrity()
        if batch is not None:
            self.in_flight.append((batch, self.executor.execute(batch).result()))
            self.clock.advance(duration_s)
        elif not self.in_flight:
            assert not self.scheduler.has_work, "there is work, nothing in flight, and nothing was scheduled"
        if self.in_flight and (batch is None or len(self.in_flight) > self.overlap_depth):
            done, output = self.in_flight.popleft()
            num_prefill = sum(row.num_scheduled_tokens for row in done.rows if row.num_scheduled_tokens > 1)
            self.scheduler.observe_step(num_prefill, duration_s)
            if not num_prefill:
                self.scheduler.observe_decode(output, duration_s)
            self.take(self.scheduler.update(done, output))
            self.cache.check_integrity()
        return batch

    def run(self, max_steps: int = 10_000) -> None:
        """Steps until every request has ended."""
        for _ in range(max_steps):
            if not self.scheduler.has_work and not self.in_flight:
                return
            self.step()
        raise AssertionError(f"still running after {max_steps} steps: {self.scheduler.stats()}")

    def check_idle(self) -> None:
        """Nothing is left behind: every block and state is free, every request has ended exactly once."""
        assert not self.scheduler.has_work
        assert (self.scheduler.num_running, self.scheduler.num_waiting) == (0, 0)
        self.cache.check_integrity()
        assert self.cache.num_free_blocks == self.cache.num_usable_blocks
        assert self.cache.num_free_states == self.cache.num_usable_states
        assert set(self.ends) == set(self.requests)
        assert self.scheduler.stats().num_waiting_tokens == 0
