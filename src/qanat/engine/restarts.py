"""Whether and when a dead core is replaced."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from qanat.core.errors import EngineRestartingError

WINDOW_S = 600.0
FIRST_DELAY_S = 1.0
MAX_DELAY_S = 30.0


@dataclass
class RestartBudget:
    """So many restarts within a window of time, each after twice the wait of the one before.

    Attributes:
        max_restarts: within the window; 0 never restarts.
        clock: monotonic seconds.
        num_restarts: begun so far.
    """

    max_restarts: int = 0
    clock: Callable[[], float] = time.monotonic
    num_restarts: int = 0
    _recent: deque[float] = field(default_factory=deque)

    def next_delay_s(self) -> float | None:
        """Seconds to wait before the restart that begins now; None if there may be none."""
        now_s = self.clock()
        while self._recent and now_s - self._recent[0] > WINDOW_S:
            self._recent.popleft()
        if len(self._recent) >= self.max_restarts:
            return None
        delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** len(self._recent))
        self._recent.append(now_s)
        self.num_restarts += 1
        return delay_s


class Comeback:
    """A restart that is under way.

    Args:
        reason: why it is needed, as a sentence.
        delay_s: until the start begins.
        start_s: how long the last start took.
        clock: monotonic seconds.
    """

    def __init__(
        self, reason: str, *, delay_s: float, start_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reason = reason
        self._clock = clock
        self._ready_s = clock() + delay_s + start_s

    def error(self) -> EngineRestartingError:
        """What is said to those who ask meanwhile: when to come back, if this start takes as long as the last."""
        left_s = max(1, math.ceil(self._ready_s - self._clock()))
        return EngineRestartingError(
            f"{self._reason} A new one is being started; try again in about {left_s} s.", retry_after_s=left_s
        )
