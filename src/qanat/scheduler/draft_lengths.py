"""How many tokens are drafted for each request: as many as pay, by measured acceptance and measured cost."""

from __future__ import annotations

from collections.abc import Sequence

from qanat.core.speculation import SpeculationCounter, SpeculationCounts
from qanat.scheduler.acceptance import Acceptance
from qanat.scheduler.draft_costs import MeasuredCosts, StepCosts, group_of
from qanat.scheduler.live_request import RunningRequest
from qanat.scheduler.useless_drafts import UselessDrafts

NUM_STEPS_KEPT = 4
"""For so many steps the batch's length holds: to choose costs more than it can gain in that time."""
LEAST_GAIN, TAKE_UP_GAIN = 0.03, 0.15
"""Another length must promise so much more output per second than the present one, and than plain steps: the first
drafts have entries to catch up, and acceptance and cost are not known well enough for small gains."""
FIRST_PAUSE_STEPS, LONGEST_PAUSE_STEPS = 256, 8192
"""Where drafts do not pay they are tried again after so many steps, twice as many each time, and at last so many."""
PLAIN_STEPS_MEASURED = 16
"""Every so many steps without drafts, one is measured."""
SETTLING_STEPS = 8
"""So long another number of requests must hold before drafts are taken up: the first ones have much to catch up."""
MAX_BLIND_TRIALS = 4
"""So often something is tried that no step told the cost of, as where there is prefill in all of them."""


class DraftLengths:
    """Chooses, for the batch and then for each request, the number of drafts that promises most output per second.

    For a number of requests (about), steps without drafts and with the most are measured first, a few each; then the
    length is the one with the best ratio of tokens, by acceptance, to seconds, as measured. Where that is none, steps
    are those of plain decoding until drafts are tried again. A request for which the last of the batch's drafts is
    worth less than its row has fewer.

    Args:
        max_draft_tokens: most drafts of a request in a step.
        is_adaptive: False holds the length at that.
        costs: seconds of steps; None measures them.
    """

    def __init__(
        self, max_draft_tokens: int, *, is_adaptive: bool = True, costs: StepCosts | None = None
    ) -> None:
        self._most = max_draft_tokens
        self._is_adaptive = is_adaptive
        self._costs = costs or MeasuredCosts()
        self._counter = SpeculationCounter(max_draft_tokens)
        self._useless = UselessDrafts()
        self._acceptance = Acceptance(max_draft_tokens)
        self._length = max_draft_tokens
        self._row_price = 0.0
        self._group = 0
        self._num_left = 0
        self._pause_steps = FIRST_PAUSE_STEPS
        self._is_trial = self._is_hopeless = self._is_settling = self._has_grown = False
        self._num_plain = self._num_blind = 0

    def begin_step(self, decoding: Sequence[RunningRequest]) -> int:
        """Chooses the batch's length, where that is due; returns it. Without drafts nobody's length need be asked."""
        if self._is_adaptive and decoding:
            self._num_left -= 1
            if self._num_left < 0 or group_of(len(decoding)) != self._group:
                self._choose(decoding)
        return self._length

    def length(self, running: RunningRequest) -> int:
        """Drafts of one request in this step."""
        length = self._length
        if not self._is_adaptive or self._is_trial or not self._row_price:
            return length
        worths = self._acceptance.worths(running, length)
        own = next((place for place, worth in enumerate(worths) if worth < self._row_price), length)
        if not own:
            self._acceptance.drift(running)
        return own

    def observe(self, running: RunningRequest, num_allowed: int, num_drafted: int, num_accepted: int) -> None:
        """Takes the outcome of a request's drafts into account."""
        self._counter.add_row(num_allowed, num_drafted, num_accepted)
        self._useless.observe(num_drafted, num_accepted)
        running.live.num_drafted += num_drafted
        running.live.num_accepted += num_accepted
        if self._is_adaptive and num_allowed:
            self._acceptance.observe(running, num_allowed, num_drafted, num_accepted)

    def observe_plain(self, num_requests: int) -> None:
        """Counts the rows of a step in which nobody might have drafts."""
        self._counter.add_plain_rows(num_requests)

    def observe_step(self, num_requests: int, length: int, step_s: float, draft_s: float) -> None:
        """Takes the cost of a step without prefill into account.

        Args:
            num_requests: that decoded.
            length: the batch's.
            step_s: seconds of all of it.
            draft_s: seconds of drafting.
        """
        if length:
            self._counter.add_step(draft_s)
        elif self._num_left > NUM_STEPS_KEPT:  # a pause: its cost is known
            self._num_plain += 1
            if self._num_plain % PLAIN_STEPS_MEASURED > 1:
                return
        if self._is_adaptive:
            self._costs.observe(num_requests, length, step_s)

    def counts(self) -> SpeculationCounts:
        """What became of drafts so far."""
        return self._counter.counts()

    def _choose(self, decoding: Sequence[RunningRequest]) -> None:
        """The length for which the batch yields most tokens per second, or one of which nothing is known yet."""
        num_requests, costs = len(decoding), self._costs
        group, was_trial = group_of(num_requests), self._is_trial
        if group != self._group and self._group and not self._length:
            self._has_grown = group > self._group
            self._group, self._num_left, self._is_settling = group, SETTLING_STEPS, True
            return
        is_other = group != self._group or self._is_settling
        grew_hopeless = self._is_settling and self._has_grown and self._is_hopeless
        self._is_settling = False
        self._group, self._is_trial, self._num_left = group, False, NUM_STEPS_KEPT - 1
        unknown = next((one for one in (self._most, 0) if not costs.step_s(num_requests, one)), None)
        if unknown is not None:
            self._num_blind += 1
            if (unknown and grew_hopeless) or self._num_blind > MAX_BLIND_TRIALS:
                self._num_blind = 0
                self._pause()
            else:
                self._length, self._is_trial = unknown, True
            return
        self._num_blind = 0
        rates = self._rates(decoding)
        best = max(range(len(rates)), key=rates.__getitem__)
        present = self._length if not is_other and not was_trial else 0
        if rates[best] <= rates[present] * (1 + (LEAST_GAIN if present else TAKE_UP_GAIN)):
            best = present
        self._is_hopeless = not best  # and so it will be with more requests, at first
        if best:
            self._pause_steps = FIRST_PAUSE_STEPS
        elif not self._length and not is_other and not was_trial:
            self._length, self._is_trial = max(range(1, len(rates)), key=rates.__getitem__), True
            self._pause_steps = min(2 * self._pause_steps, LONGEST_PAUSE_STEPS)
            return
        else:
            self._pause()
            return
        self._length = best
        extra_s = costs.step_s(num_requests, best) - costs.step_s(num_requests, 0)
        self._row_price = rates[best] * extra_s / (num_requests * best)

    def _pause(self) -> None:
        self._length, self._num_left = 0, self._pause_steps

    def _rates(self, decoding: Sequence[RunningRequest]) -> list[float]:
        """Tokens per second that each length promises, 0 first."""
        num_requests = len(decoding)
        of_place = [0.0] * self._most
        for running in decoding:
            for place, worth in enumerate(self._acceptance.worths(running, self._most)):
                of_place[place] += worth
        rates, num_tokens = [], float(num_requests)
        for length in range(self._most + 1):
            if length:
                num_tokens += self._acceptance.found_share * of_place[length - 1]
            rates.append(num_tokens / self._costs.step_s(num_requests, length))
        return rates
