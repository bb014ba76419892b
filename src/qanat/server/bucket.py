"""A bound per minute as a bucket: full at first, refilled evenly, emptied by what is used."""

from __future__ import annotations

import time
from collections.abc import Callable

PERIOD_S = 60.0


class Bucket:
    """Holds what may be used at once, at most the bound of a minute.

    Its level may fall below zero, as outputs are charged while they come: what was taken too much is waited for.

    Args:
        per_minute: the bound.
        clock: monotonic seconds.

    Attributes:
        per_minute: see above.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._level = float(per_minute)
        self._filled_s = clock()

    def level(self) -> float:
        """What may be used now."""
        now_s = self._clock()
        gain = (now_s - self._filled_s) * self.per_minute / PERIOD_S
        self._level = min(float(self.per_minute), self._level + gain)
        self._filled_s = now_s
        return self._level

    def wait_s(self, cost: int) -> float:
        """Seconds until `cost` may be taken, 0 if it may now. A cost above the bound only waits for a full bucket."""
        missing = min(cost, self.per_minute) - self.level()
        return max(0.0, missing * PERIOD_S / self.per_minute)

    def full_in_s(self) -> float:
        """Seconds until the bucket is full, if nothing is taken meanwhile."""
        return (self.per_minute - self.level()) * PERIOD_S / self.per_minute

    def take(self, cost: int) -> None:
        """Uses up so much, if need be in advance."""
        self._level = self.level() - cost

    def set_bound(self, per_minute: int) -> None:
        """Changes the bound; what was used stays used."""
        self._level = self.level() + per_minute - self.per_minute
        self.per_minute = per_minute
