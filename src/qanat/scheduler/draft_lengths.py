"""How many tokens are drafted for each request: as many as pay, by measured acceptance and measured cost."""

from __future__ import annotations

from collections.abc import Sequence

from qanat.core.speculation import SpeculationCounter, SpeculationCounts
from qanat.scheduler.draft_costs import MeasuredCosts, StepCosts
from qanat.scheduler.live_request import RunningRequest

OWN_SHARE, COMMON_SHARE = 0.12, 0.01
"""Weights of one draft's outcome in the estimate of its request, and in that of all requests."""
HOPE = 0.6
"""Acceptance that is assumed while nothing is known, and that estimates without news drift back to."""
DRIFT = 0.003
"""How fast they do, for each step without drafts: after some hundred steps drafting is tried again."""
NUM_STEPS_KEPT = 4
"""For so many steps the batch's length holds: to choose costs more than it can gain in that time."""
LEAST_GAIN = 0.02
"""Another length must promise so much more output per second than the present one."""


class DraftLengths:
    """Chooses, for the batch and then for each request, the number of drafts that promises most output per second.

    A request whose drafts agree with probability p gets 1 + p + ... + p^k tokens from a step with k of them. The
    batch's k is the best for all together; a request for which the last of them is worth less than its row has fewer.

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
        self._common = HOPE
        self._found = 1.0
        self._length = max_draft_tokens
        self._row_price = 0.0
        self._chosen_for = 0
        self._num_kept = 0

    def begin_step(self, decoding: Sequence[RunningRequest]) -> None:
        """Chooses the batch's length, where that is due."""
        if not self._is_adaptive or not decoding:
            return
        self._num_kept += 1
        is_other = abs(len(decoding) - self._chosen_for) * 8 > self._chosen_for
        if is_other or self._num_kept >= NUM_STEPS_KEPT:
            self._choose(decoding)
        if not self._length:
            self._common += DRIFT * (HOPE - self._common)

    def length(self, running: RunningRequest) -> int:
        """Drafts of one request in this step."""
        if not self._is_adaptive:
            return self._most
        length, acceptance = self._length, self._acceptance(running)
        if length and self._row_price:
            worth = 1.0
            for position in range(length):
                worth *= acceptance
                if worth < self._row_price:
                    length = position
                    break
        if not length and running.live.acceptance >= 0:
            running.live.acceptance += DRIFT * (self._common - running.live.acceptance)
        return length

    def observe(self, running: RunningRequest, num_allowed: int, num_drafted: int, num_accepted: int) -> None:
        """Takes the outcome of a request's drafts into account."""
        self._counter.add_row(num_allowed, num_drafted, num_accepted)
        live = running.live
        live.num_drafted += num_drafted
        live.num_accepted += num_accepted
        if not self._is_adaptive or not num_allowed:
            return
        self._found += COMMON_SHARE * ((num_drafted / num_allowed) - self._found)
        if not num_drafted:
            return
        own = self._acceptance(running)
        for outcome in (1.0,) * num_accepted + (0.0,) * (num_accepted < num_drafted):
            own += OWN_SHARE * (outcome - own)
            self._common += COMMON_SHARE * (outcome - self._common)
        live.acceptance = own

    def observe_step(self, drafted: Sequence[int], pass_s: float, draft_s: float) -> None:
        """Takes the cost of a step without prefill into account.

        Args:
            drafted: drafts of each request that decoded.
            pass_s: seconds without those of drafting.
            draft_s: seconds of drafting.
        """
        self._counter.add_step(draft_s)
        num_drafting = len(drafted) - drafted.count(0)
        self._costs.observe(
            len(drafted) + sum(drafted), pass_s, num_drafting, max(drafted, default=0), draft_s
        )

    def counts(self) -> SpeculationCounts:
        """What became of drafts so far."""
        return self._counter.counts()

    def _acceptance(self, running: RunningRequest) -> float:
        own = running.live.acceptance
        return own if own >= 0 else self._common

    def _choose(self, decoding: Sequence[RunningRequest]) -> None:
        """The length for which the batch yields most tokens per second, with a bonus for the present one."""
        self._num_kept, self._chosen_for = 0, len(decoding)
        costs, num_requests = self._costs, len(decoding)
        worths = [1.0] * num_requests
        acceptances = [self._acceptance(running) for running in decoding]
        num_tokens = float(num_requests)
        rates: list[float] = []
        for length in range(self._most + 1):
            if length:
                worths = [worth * one for worth, one in zip(worths, acceptances, strict=True)]
                num_tokens += self._found * sum(worths)
            num_rows = num_requests * (1 + self._found * length)
            seconds = costs.pass_s(round(num_rows)) + length * costs.draft_s(num_requests)
            if not seconds:  # nothing is known: trying tells
                return
            rates.append(num_tokens / seconds)
        best = max(range(len(rates)), key=rates.__getitem__)
        if rates[best] > rates[self._length] * (1 + LEAST_GAIN) or best == self._length:
            self._length = best
        length = self._length
        extra_s = costs.pass_s(num_requests * (1 + length)) - costs.pass_s(num_requests)
        self._row_price = rates[length] * extra_s / (num_requests * length) if length else 0.0
