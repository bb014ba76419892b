"""How often drafts are right: by their place behind the newest token, and by request."""

from __future__ import annotations

from collections.abc import Sequence

from qanat.scheduler.live_request import RunningRequest

HOPE = 0.6
"""Acceptance that is assumed of a first draft while nothing is known."""
OWN_SHARE, COMMON_SHARE = 0.12, 0.02
"""Weights of one draft's outcome in the estimate of its request, and in that of its place."""
OWN_DRIFT = 0.003
"""How fast a request without drafts is taken to be like all others again, for each step."""
FIRST_OUTCOMES = 8
"""So many outcomes count more: an estimate begins as their mean, and not with hope."""


class Acceptance:
    """Running estimates of the share of right drafts among those whose predecessors were right.

    That of a place holds for all requests; what a request has beyond it or lacks is added for each of its places.

    Args:
        max_draft_tokens: places.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        self._of_place = [HOPE] * max_draft_tokens
        self._num_seen = [0] * max_draft_tokens
        self._found = 1.0

    @property
    def found_share(self) -> float:
        """Of the drafts that were allowed, how many were made."""
        return self._found

    def observe(self, running: RunningRequest, num_allowed: int, num_drafted: int, num_accepted: int) -> None:
        """Takes the outcome of a request's drafts into account; of those behind the first wrong one none is known."""
        self._found += COMMON_SHARE * (num_drafted / num_allowed - self._found)
        live = running.live
        for place in range(min(num_accepted + 1, num_drafted)):
            outcome = 1.0 if place < num_accepted else 0.0
            surprise = outcome - self._expected(place)
            live.draft_surplus += OWN_SHARE * (surprise - live.draft_surplus)
            self._num_seen[place] += 1
            share = (
                max(COMMON_SHARE, 1 / (self._num_seen[place] + 1)) if self._is_new(place) else COMMON_SHARE
            )
            self._of_place[place] += share * (outcome - self._of_place[place])

    def drift(self, running: RunningRequest) -> None:
        """Of a request that had no drafts in a step."""
        running.live.draft_surplus *= 1.0 - OWN_DRIFT

    def worths(self, running: RunningRequest, length: int) -> Sequence[float]:
        """For each draft of a request the probability that it becomes output: it and those before are right."""
        surplus, worth, found = running.live.draft_surplus, 1.0, []
        for place in range(length):
            worth *= min(max(self._expected(place) + surplus, 0.0), 1.0)
            found.append(worth)
        return found

    def _is_new(self, place: int) -> bool:
        return self._num_seen[place] <= FIRST_OUTCOMES

    def _expected(self, place: int) -> float:
        """Where nothing was seen, what is expected of the place before."""
        while place and not self._num_seen[place]:
            place -= 1
        return self._of_place[place]
