"""The circuit breaker of one endpoint: it opens after failures, and closes again after trials that succeed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum


class BreakerState(str, Enum):
    """CLOSED lets everything through, OPEN nothing, HALF_OPEN one request at a time."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """When it opens and closes.

    Attributes:
        max_consecutive: failures in a row that open it.
        max_share: share of failures in the window that opens it.
        min_calls: calls that the window must hold before the share counts.
        window_s: how far back the share looks.
        open_s: how long it stays open the first time; twice as long after each trial that fails.
        max_open_s: the longest that it stays open.
        num_trials: trials in a row that must succeed before it closes.
    """

    max_consecutive: int = 5
    max_share: float = 0.5
    min_calls: int = 20
    window_s: float = 30.0
    open_s: float = 1.0
    max_open_s: float = 30.0
    num_trials: int = 2


class Breaker:
    """Pure: whoever calls says what time it is (any clock that only goes forward, in seconds)."""

    def __init__(self, rules: BreakerRules | None = None) -> None:
        self.rules = rules or BreakerRules()
        self.state = BreakerState.CLOSED
        self.num_opened = 0
        self.last_error = ""
        self._num_consecutive = 0
        self._num_passed_trials = 0
        self._span_s = self.rules.open_s
        self._reopens_s = 0.0
        self._window: deque[tuple[float, bool]] = deque()
        self._num_failed = 0

    def succeeded(self, now_s: float) -> None:
        """A call was answered; in a trial it counts towards closing."""
        self._num_consecutive = 0
        if self.state is BreakerState.HALF_OPEN:
            self._num_passed_trials += 1
            if self._num_passed_trials >= self.rules.num_trials:
                self.reset()
        elif self.state is BreakerState.CLOSED:
            self._note(now_s, False)

    def failed(self, now_s: float, why: str = "") -> None:
        """A call failed by the endpoint's fault; a failed trial opens it again for longer."""
        self.last_error = why
        if self.state is BreakerState.HALF_OPEN:
            self._span_s = min(self._span_s * 2, self.rules.max_open_s)
            self._open(now_s)
        elif self.state is BreakerState.CLOSED:
            self._num_consecutive += 1
            self._note(now_s, True)
            if self._num_consecutive >= self.rules.max_consecutive or self._is_share_reached():
                self._open(now_s)

    def tick(self, now_s: float) -> None:
        """Time has passed: what was open long enough is tried."""
        if self.state is BreakerState.OPEN and now_s >= self._reopens_s:
            self.state = BreakerState.HALF_OPEN
            self._num_passed_trials = 0

    def reset(self) -> None:
        """Closed as if new; `num_opened` stays."""
        self.state = BreakerState.CLOSED
        self._num_consecutive = 0
        self._span_s = self.rules.open_s
        self._window.clear()
        self._num_failed = 0

    def retry_after_s(self, now_s: float) -> float:
        """Seconds until the next trial; 0 unless it is open."""
        return max(0.0, self._reopens_s - now_s) if self.state is BreakerState.OPEN else 0.0

    def _open(self, now_s: float) -> None:
        self.state = BreakerState.OPEN
        self.num_opened += 1
        self._reopens_s = now_s + self._span_s
        self._num_consecutive = 0
        self._window.clear()
        self._num_failed = 0

    def _note(self, now_s: float, is_failure: bool) -> None:
        window = self._window
        window.append((now_s, is_failure))
        self._num_failed += is_failure
        while window[0][0] < now_s - self.rules.window_s:
            self._num_failed -= window.popleft()[1]

    def _is_share_reached(self) -> bool:
        num_calls = len(self._window)
        return num_calls >= self.rules.min_calls and self._num_failed >= self.rules.max_share * num_calls
