"""What strangers can do to the log: little, however much they say and whatever it is."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

QUIET_S = 10.0
MAX_TEXT = 2000


class Quiet:
    """So many lines on one matter within `QUIET_S`, and no more.

    Args:
        max_lines: within that time.
        clock: monotonic seconds.
    """

    def __init__(self, max_lines: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_s: deque[float] = deque(maxlen=max_lines)

    def may_tell(self) -> bool:
        """Whether a line may be written now, which is then counted."""
        now_s = self._clock()
        is_full = len(self._told_s) == self._told_s.maxlen
        if is_full and now_s - self._told_s[0] < QUIET_S:
            return False
        self._told_s.append(now_s)
        return True
