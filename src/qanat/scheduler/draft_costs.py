"""What a step costs, measured: the other half of the choice of how many tokens to draft."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

NEW_SHARE = 0.1
"""Weight of a new measurement in a running estimate."""
NUM_FIRST = 3
"""Of so many first measurements the least counts: a step that is the first of its kind is slow."""
NUM_FORGOTTEN_STEPS = 4000
"""An estimate that was not confirmed for so many measurements is dropped: the machine may have changed since."""
GROUP_GROWTH = 1.2
"""Numbers of requests are told apart in steps of a fifth."""


def group_of(num_requests: int) -> int:
    """Which numbers of requests are taken to cost alike; ascending."""
    return (
        num_requests
        if num_requests < 6
        else 5 + math.floor(math.log(num_requests / 5) / math.log(GROUP_GROWTH))
    )


class StepCosts(Protocol):
    """Seconds of whole steps without prefill, for the choice of draft lengths."""

    def step_s(self, num_requests: int, length: int) -> float:
        """A step in which so many requests may have so many drafts each; 0 while nothing is known of it."""

    def observe(self, num_requests: int, length: int, step_s: float) -> None:
        """Takes such a step into account."""


@dataclass(slots=True)
class _Estimate:
    """Seconds of one kind of step, how often it was measured, and when last."""

    step_s: float
    num_seen: int
    last_seen: int


class MeasuredCosts:
    """Running estimates by the number of requests and the length of drafts; between lengths it is interpolated.

    They hold whatever a step of that kind does: making drafts, verifying them, drafts that are not found or not wanted
    for some of the requests, scheduling.
    """

    def __init__(self) -> None:
        self._groups: dict[int, dict[int, _Estimate]] = {}
        self._now = 0
        self._last = (0, -1)

    def step_s(self, num_requests: int, length: int) -> float:
        """See `StepCosts`."""
        known = self._groups.get(group_of(num_requests), {})
        if length in known:
            return known[length].step_s
        below = max((one for one in known if one < length), default=None)
        above = min((one for one in known if one > length), default=None)
        if below is None or above is None:
            return 0.0
        share = (length - below) / (above - below)
        return known[below].step_s + share * (known[above].step_s - known[below].step_s)

    def observe(self, num_requests: int, length: int, step_s: float) -> None:
        """See `StepCosts`. The first step of another kind than the one before does not count."""
        group = group_of(num_requests)
        last, self._last = self._last, (group, length)
        if last != self._last:
            return
        self._now += 1
        known = self._groups.setdefault(group, {})
        own = known.get(length)
        if own is None:
            known[length] = _Estimate(step_s, 1, self._now)
            return
        own.num_seen += 1
        own.last_seen = self._now
        if own.num_seen <= NUM_FIRST:
            own.step_s = min(own.step_s, step_s)
        else:  # one slow step of a busy machine does not count in full
            own.step_s += NEW_SHARE * (min(step_s, 1.5 * own.step_s) - own.step_s)
        if not self._now % NUM_FORGOTTEN_STEPS:
            self._forget()

    def _forget(self) -> None:
        for group, known in self._groups.items():
            self._groups[group] = {
                length: one
                for length, one in known.items()
                if self._now - one.last_seen < NUM_FORGOTTEN_STEPS
            }
