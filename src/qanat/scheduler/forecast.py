"""How long a new request would wait, from the paces that were measured. Without a measured pace, no answer."""

from __future__ import annotations

import math

from qanat.scheduler.drain_pace import DrainPace
from qanat.scheduler.prefill_pace import PrefillPace
from qanat.scheduler.running_set import RunningSet
from qanat.scheduler.waiting_queue import WaitingQueue

MAX_RETRY_S = 600
"""Longest time after which a refused client is told to come again."""


class Forecast:
    """Looks ahead over the queue and the prompts under way (S11)."""

    def __init__(
        self,
        waiting: WaitingQueue,
        running: RunningSet,
        prefill_pace: PrefillPace,
        drain_pace: DrainPace,
        max_num_seqs: int,
    ) -> None:
        self._waiting = waiting
        self._running = running
        self._prefill_pace = prefill_pace
        self._drain_pace = drain_pace
        self._max_num_seqs = max_num_seqs

    def wait_s(self, owner: str, priority: int) -> float | None:
        """Seconds until a request that is added now is first scheduled; None if no pace has been measured.

        Two things must happen before: the prompts under way and those whose turn comes earlier are computed, and so
        many requests enter. The later of the two counts.
        """
        num_requests, num_tokens = self._waiting.ahead_of(owner, priority)
        num_tokens += sum(running.num_uncomputed for running in self._running.prefilling)
        s_per_request = self._drain_pace.s_per_request
        if not self._prefill_pace.is_measured and s_per_request is None:
            return None
        prefill_s = num_tokens * self._prefill_pace.s_per_token if self._prefill_pace.is_measured else 0.0
        if not self._drain_pace.is_backlogged:  # whoever finds a row enters at once
            num_requests -= self._max_num_seqs - len(self._running)
        turns_s = max(0, num_requests + 1) * (s_per_request or 0.0)
        return max(prefill_s, turns_s)


def whole_seconds(seconds: float | None) -> int:
    """A time for Retry-After: whole seconds, at least 1, bounded; 1 if nothing is known."""
    return 1 if seconds is None else min(MAX_RETRY_S, max(1, math.ceil(seconds)))
