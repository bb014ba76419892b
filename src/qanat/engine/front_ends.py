"""The front ends of one core beside the first: whose request is whose, and who is told what after a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from qanat.core.outputs import RequestOutput
from qanat.engine.messages import FromCore, StepDone
from qanat.scheduler.stats import SchedulerStats

STATS_PERIOD_S = 0.05
"""How often a front end without news of its own hears the scheduler's figures while steps go on."""


class FrontEnds:
    """Splits the news of steps. The first front end is number 0 and always there; unknown requests are its.

    Args:
        send: queues a message for a front end that is open, by its number.
        clock: monotonic seconds.
    """

    def __init__(
        self, send: Callable[[int, FromCore], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._send = send
        self._clock = clock
        self._told_s: dict[int, float] = {}  # when each open one last heard of a step
        self._owners: dict[str, int] = {}

    @property
    def has_others(self) -> bool:
        """True if there is any beside the first."""
        return bool(self._told_s)

    def open(self, number: int) -> None:
        """From now on there is this one too."""
        self._told_s[number] = -STATS_PERIOD_S

    def close(self, number: int) -> list[str]:
        """Forgets one; returns the ids of its requests that have not ended."""
        if self._told_s.pop(number, None) is None:
            return []
        ids = [request_id for request_id, owner in self._owners.items() if owner == number]
        for request_id in ids:
            del self._owners[request_id]
        return ids

    def take(self, number: int, request_ids: Iterable[str]) -> bool:
        """Notes that these requests are this front end's; False if there is no such one, or no more."""
        if number == 0:
            return True
        if number not in self._told_s:
            return False
        self._owners |= dict.fromkeys(request_ids, number)
        return True

    def is_open(self, number: int) -> bool:
        """True if messages can be sent to it."""
        return number == 0 or number in self._told_s

    def tell(
        self, outputs: Sequence[RequestOutput], stats: SchedulerStats, num_steps: int, *, is_last: bool
    ) -> None:
        """Tells each what a step did for its requests, and the figures to all, if only now and then.

        Args:
            outputs: news of all requests.
            stats: figures after the step.
            num_steps: so far.
            is_last: no step follows at once, so that these figures hold for a while.
        """
        shares: dict[int, list[RequestOutput]] = {0: [], **{number: [] for number in self._told_s}}
        for output in outputs:
            owner = self._owners.get(output.request_id, 0)
            shares[owner].append(output)
            if owner and output.finish_reason is not None:
                del self._owners[output.request_id]
        now_s = self._clock()
        for number, share in shares.items():
            if share or is_last or now_s - self._told_s.get(number, now_s) >= STATS_PERIOD_S:
                self._send(number, StepDone(share, stats, num_steps))
                if number:
                    self._told_s[number] = now_s
