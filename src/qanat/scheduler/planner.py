"""One step's work: decodes first, then prompts that are under way, then admissions."""

from __future__ import annotations

from dataclasses import dataclass, field

from qanat.cache.manager import HybridCacheManager
from qanat.config.resolved import SchedulerLimits
from qanat.core.batch import NewRow, ScheduledRow
from qanat.core.request import RequestStatus
from qanat.scheduler.deadlines import Deadlines
from qanat.scheduler.draft_lengths import DraftLengths
from qanat.scheduler.live_request import LiveRequest, RunningRequest
from qanat.scheduler.output_bill import OutputBill
from qanat.scheduler.parking import Parking
from qanat.scheduler.prefill_pace import PrefillPace
from qanat.scheduler.running_set import RunningSet
from qanat.scheduler.waiting_queue import WaitingQueue

CHUNK_GRID = 64
"""Prefill chunks end at absolute multiples of this: there, and only there, recurrent states may be checkpointed."""

IDLE_STALL_FACTOR = 4
"""Without running decodes, a step's prefill may take so many times `max_decode_stall_s`."""
UNKNOWN_PACE_TOKENS = 1024
"""Prefill tokens of a step while nothing is known of their cost."""


@dataclass(slots=True)
class StepPlan:
    """One step while it is put together, and while its results are awaited.

    Attributes:
        budget: tokens that the step may still take.
        prefill_budget: of those, how many may be prefill.
        rows: the work, decodes before chunks.
        new_rows: requests that enter.
        decodes: requests of the leading `rows`, one token each, and drafts maybe.
        draft_length: drafts that each of those may have at most.
        chunks: requests of the remaining `rows`; True if the chunk reaches the end of the known tokens, so that the
            row yields output.
    """

    budget: int
    prefill_budget: int = 0
    rows: list[ScheduledRow] = field(default_factory=list)
    new_rows: list[NewRow] = field(default_factory=list)
    decodes: list[RunningRequest] = field(default_factory=list)
    draft_length: int = 0
    chunks: list[tuple[RunningRequest, bool]] = field(default_factory=list)


class StepPlanner:
    """Fills one step after the other from the running requests and the queue.

    Order of service is the order of rank, and a request only ever makes later-ranked ones give way. So the first in
    rank always moves on, whatever else happens, and every request ends.
    """

    def __init__(
        self,
        limits: SchedulerLimits,
        cache: HybridCacheManager,
        running: RunningSet,
        waiting: WaitingQueue,
        pace: PrefillPace,
        deadlines: Deadlines,
        bill: OutputBill,
        drafts: DraftLengths | None = None,
    ) -> None:
        self._limits = limits
        self._cache = cache
        self._running = running
        self._waiting = waiting
        self._pace = pace
        self._deadlines = deadlines
        self._bill = bill
        self._drafts = drafts
        self._is_turn_of_short = False
        self._least_uncomputed = 0 if limits.is_overlapped else 1
        self.parking = Parking(waiting, running, limits.max_num_seqs)
        self.num_preemptions = 0
        self.num_recomputed_tokens = 0

    def plan(self, now_s: float) -> StepPlan:
        """The next step; without rows if there is nothing to compute."""
        step = StepPlan(budget=self._limits.max_num_batched_tokens)
        self.parking.let_out()
        if self._running.prefilling:
            self._park()
        if self._drafts is not None:
            step.draft_length = self._drafts.begin_step(self._running.decoding)
        if self._drafts is None or not step.draft_length:
            self._plan_decodes(step)
        else:
            self._plan_drafting(step, self._drafts)
        step.prefill_budget = self._prefill_budget(step.budget)
        if self._running.prefilling:
            short_tokens = self._short_tokens(step.prefill_budget)
            self._plan_chunks(step, short_tokens, self._num_kept_for_short(short_tokens, step.prefill_budget))
        self._plan_admissions(step, now_s)
        if self._running.prefilling and not step.chunks:  # what was kept found no taker
            self._plan_chunks(step)
        return step

    def preempt(self, running: RunningRequest) -> None:
        """Takes a request out of the batch with its blocks and its state; it will recompute what is not cached."""
        live, request = running.live, running.request
        live.num_lost_tokens = request.num_computed_tokens
        self._running.leave(running)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = RequestStatus.PREEMPTED
        self.num_preemptions += 1
        self._waiting.push(live, is_preempted=True)

    def _park(self) -> None:
        """Lets those wait beside the queue whose prefix is being computed, before room is kept for who is next."""
        while self._running.has_free_row and (live := self._waiting.peek()) is not None:
            awaited = self._cache.lookup(live.request).awaited
            if awaited is None or not self.parking.take(live, awaited):
                return

    def _plan_decodes(self, step: StepPlan) -> None:
        """One token for each request whose newest token is not computed yet. The hottest loop of the scheduler."""
        budget = step.budget
        add_row, add_decode = step.rows.append, step.decodes.append
        # Preemption removes requests behind the present one only, so the iteration stays valid.
        for running in self._running.decoding:
            if running.num_uncomputed < 1 and not self._goes_ahead(running):
                continue
            if not budget:
                break
            if running.num_spare > running.num_unsure:
                add_row(running.decode_row)
            else:
                new_ids = self._reserve(running)
                if new_ids is None:
                    continue
                add_row(ScheduledRow(running.row, 1, new_ids))
            running.num_uncomputed -= 1
            running.num_spare -= 1
            running.request.num_computed_tokens += 1
            add_decode(running)
            budget -= 1
        step.budget = budget

    def _plan_drafting(self, step: StepPlan, drafts: DraftLengths) -> None:
        """The same with room for drafts. Next tokens come first, and prompts have half of what is left."""
        decoding = self._running.decoding
        num_extra = step.budget - len(decoding)
        if self._running.prefilling or len(self._waiting):
            num_extra //= 2
        for running in decoding:
            if running.num_uncomputed < 1 and not self._goes_ahead(running):
                continue
            if not step.budget:
                break
            num_left = running.num_outputs_left - (running.num_uncomputed < 1) - running.num_unsure
            most = min(drafts.length(running), num_left - 1, num_extra)
            if self._cache.keeps_states:
                most = min(most, self._drafts_before_state(running))
            places = self._places(running, 1 + max(most, 0))
            if places is None:
                continue
            num_drafts, new_ids = places
            if num_drafts or new_ids:
                step.rows.append(ScheduledRow(running.row, 1, new_ids, num_drafts))
            else:
                step.rows.append(running.decode_row)
            running.num_uncomputed -= 1
            running.num_spare -= 1
            running.num_unsure += num_drafts
            running.request.num_computed_tokens += 1
            step.decodes.append(running)
            num_extra -= num_drafts
            step.budget -= 1 + num_drafts

    def _drafts_before_state(self, running: RunningRequest) -> int:
        """Drafts with which the step ends where the request's state is to be kept, at the furthest (P3).

        What has been accepted up to here is kept now, if this is such a place: later the state has passed it.
        """
        num_beyond = (running.request.num_computed_tokens + running.num_unsure) % CHUNK_GRID
        if not num_beyond and not running.num_unsure:
            self._cache.advance(running.request, is_settled=True)
        return CHUNK_GRID - num_beyond - 1

    def _goes_ahead(self, running: RunningRequest) -> bool:
        """Whether a request can go on although its newest token is still being computed (S15).

        Not if its output is sure to end with that token, or may end with the drafts behind it: every row has its place
        within the window. Nor if those drafts may end where its state is to be kept. A stop token is not foreseen; the
        row is then computed for nobody.
        """
        if running.num_uncomputed < self._least_uncomputed:
            return False
        if running.num_outputs_left <= 1 + running.num_unsure:
            return False
        if running.num_unsure and self._cache.keeps_states:
            furthest = running.request.num_computed_tokens + running.num_unsure
            if not furthest % CHUNK_GRID:
                return False
        if running.is_unindexed:
            running.is_unindexed = False
            self._cache.advance(running.request)
        return True

    def _places(self, running: RunningRequest, num_wanted: int) -> tuple[int, list[int]] | None:
        """Drafts that have places behind the next token's, and new blocks for them; None if not even that has one.

        Drafts take a block only where one more is left for everybody who may need it (S4): what they get, the request
        would have taken within the next few steps.
        """
        new_ids: list[int] = []
        num_unsure = running.num_unsure
        if running.num_spare - num_unsure < num_wanted:
            if num_wanted > 1 and self._cache.num_free_blocks > self._running.num_growing:
                new_ids = self._running.extend(running, num_wanted) or []
            if running.num_spare <= num_unsure:
                own_ids = self._reserve(running)
                if own_ids is None:
                    return None
                new_ids += own_ids
        return min(num_wanted, running.num_spare - num_unsure) - 1, new_ids

    def _reserve(self, running: RunningRequest) -> list[int] | None:
        """Room for one more token, at the cost of later-ranked requests if need be.

        None if all that is left belongs to earlier-ranked ones: the request then keeps what it has and waits for
        them. That is cheaper than recomputing it, and an earlier-ranked request may still take its blocks.
        """
        while (new_ids := self._running.extend(running)) is None:
            victim = self._running.last_after(running.rank)
            if victim is None:
                return None
            self.preempt(victim)
        return new_ids

    def _prefill_budget(self, budget: int) -> int:
        """Prefill tokens of this step: what is left, bounded by the time that decodes may be held up.

        Without decodes a step may last longer, but not without bound: aborts and newcomers wait for its end.
        """
        stall_s = self._limits.max_decode_stall_s
        max_tokens = self._pace.max_tokens(stall_s if self._running.decoding else IDLE_STALL_FACTOR * stall_s)
        return min(budget, UNKNOWN_PACE_TOKENS if max_tokens is None else max_tokens)

    def _plan_chunks(self, step: StepPlan, short_tokens: int = 0, num_kept: int = 0) -> None:
        """The next chunk of each prompt under way; their blocks were reserved at admission.

        Args:
            step: takes them.
            short_tokens: prompts with so many tokens left are short.
            num_kept: prefill tokens that the others may not have (S13).
        """
        for running in list(self._running.prefilling):
            if step.prefill_budget <= 0:
                return
            is_short = running.num_uncomputed <= short_tokens
            step.prefill_budget -= 0 if is_short else num_kept
            start = running.request.num_computed_tokens
            num_tokens = self._chunk(running.num_uncomputed, start, step)
            step.prefill_budget += 0 if is_short else num_kept
            if num_tokens:
                self._cache.advance(running.request)
                self._take_chunk(running, num_tokens, step)
            if is_short:
                num_kept = max(0, num_kept - num_tokens)

    def _short_tokens(self, prefill_budget: int) -> int:
        """The longest prompt that is short beside this step's prefill.

        Half of it; or, where half is less than a chunk, all of it in every other step.
        """
        if not self._limits.is_chunked_prefill_enabled:
            return 0
        if prefill_budget >= 2 * CHUNK_GRID:
            return prefill_budget // 2
        self._is_turn_of_short = not self._is_turn_of_short
        return prefill_budget if self._is_turn_of_short else 0

    def _num_kept_for_short(self, short_tokens: int, prefill_budget: int) -> int:
        """Prefill tokens that are kept from long prompts: as many as short ones can use, under way or next in turn."""
        if not short_tokens:
            return 0
        prefilling = self._running.prefilling
        num_wanted = sum(one.num_uncomputed for one in prefilling if one.num_uncomputed <= short_tokens)
        head = self._waiting.peek() if self._running.has_free_row else None
        if head is not None and head.request.num_tokens <= short_tokens:
            num_wanted += self._waiting.num_tokens
        if num_wanted and short_tokens == prefill_budget:  # what they would leave is less than a chunk
            return prefill_budget
        return min(num_wanted, short_tokens)

    def _plan_admissions(self, step: StepPlan, now_s: float) -> None:
        """Requests from the queue, in order, until one does not fit. One without hope is left for `expire` to end."""
        while step.prefill_budget > 0 and self._running.has_free_row:
            live = self._waiting.peek()
            if live is None or self._deadlines.missed(live, now_s) is not None or not self._admit(live, step):
                return
            if live.first_scheduled_s is None and live.running is not None:
                live.first_scheduled_s = now_s

    def _admit(self, live: LiveRequest, step: StepPlan) -> bool:
        """Admits a request if it surely fits (S4).

        Its known tokens must fit into free blocks, and afterwards there must be one free block for each running
        request, itself included, that may yet need one. A request takes at least `block_size` steps from one new
        block to the next, so that nothing is preempted for so many steps after an admission.
        """
        request = live.request
        hit = self._cache.lookup(request)
        if hit.awaited is not None and self.parking.take(live, hit.awaited):
            return True
        num_tokens = request.num_tokens
        num_scheduled = self._chunk(num_tokens - hit.num_tokens, hit.num_tokens, step)
        if not num_scheduled:
            return False
        num_blocks = self._cache.spec.num_blocks_for(num_tokens)
        is_growing = live.max_computed_tokens > num_blocks * self._cache.block_size
        num_taken = num_blocks - hit.num_shared_blocks
        if num_taken + self._running.num_growing + is_growing > self._cache.num_free_blocks:
            return False
        allocation = self._cache.admit(request, hit, num_tokens)
        if allocation is None:
            return False
        self._waiting.pop()
        if live.first_scheduled_s is None:  # what is computed again was not the owner's doing
            self._bill.open(live, max(1, num_tokens - hit.num_tokens))
            live.prefix_report = hit.report
            request.num_cached_tokens = min(hit.num_tokens, request.num_prompt_tokens)
        else:
            self.num_recomputed_tokens += max(0, live.num_lost_tokens - hit.num_tokens)
        request.num_computed_tokens = hit.num_tokens
        request.status = RequestStatus.RUNNING
        running = self._running.enter(live, allocation)
        step.new_rows.append(
            NewRow(
                row=running.row,
                request_id=request.request_id,
                token_ids=request.prompt_token_ids + request.output_token_ids,
                num_prompt_tokens=request.num_prompt_tokens,
                num_computed_tokens=request.num_computed_tokens,
                sampling=request.sampling,
                seed=request.seed,
                choice_index=request.choice_index,
                stop_token_ids=request.stop_token_ids,
                block_ids=allocation.block_ids,
                state_id=allocation.state_id,
                constraint=request.constraint,
            )
        )
        self._take_chunk(running, num_scheduled, step)
        return True

    def _take_chunk(self, running: RunningRequest, num_tokens: int, step: StepPlan) -> None:
        step.budget -= num_tokens
        step.prefill_budget -= num_tokens
        request = running.request
        start = request.num_computed_tokens
        kept = self._cache.keep_on_the_way(request.request_id, start, start + num_tokens)
        stores = [(position - start, state_id) for position, state_id in kept]
        step.rows.append(ScheduledRow(running.row, num_tokens, [], stores=stores))
        running.take_scheduled(num_tokens)
        is_last = running.num_uncomputed == 0
        step.chunks.append((running, is_last))
        if is_last:
            running.is_unindexed = True
            self._running.start_decoding(running)

    def _chunk(self, num_wanted: int, start: int, step: StepPlan) -> int:
        """How many of `num_wanted` tokens from position `start` on this step computes; 0 for none.

        A chunk that is not the last ends on the grid. It ends off the grid only where it must: if a request may not
        have more in one step anyway, or if the step would otherwise compute no prefill at all.
        """
        limits = self._limits
        if not limits.is_chunked_prefill_enabled and num_wanted <= limits.max_num_batched_tokens:
            # Whole or not at all; the first one of a step may exceed the time bound, as it cannot be cut.
            is_allowed = num_wanted <= step.prefill_budget or not step.chunks
            return num_wanted if is_allowed and num_wanted <= step.budget else 0
        own_limit = limits.long_prefill_token_threshold or num_wanted
        num_tokens = min(num_wanted, own_limit, step.prefill_budget)
        if num_tokens <= 0 or num_tokens == num_wanted:
            return max(num_tokens, 0)
        num_on_grid = (start + num_tokens) // CHUNK_GRID * CHUNK_GRID - start
        if num_on_grid > 0:
            return num_on_grid
        return num_tokens if num_tokens == own_limit or not step.chunks else 0
