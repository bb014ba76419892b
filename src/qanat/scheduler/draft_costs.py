"""What a step costs, measured: the other half of the choice of how many tokens to draft."""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

NEW_SHARE = 0.2
"""Weight of a new measurement in a running estimate."""
NUM_FORGOTTEN_STEPS = 4000
"""An estimate that was not confirmed for so many steps is dropped: the machine may have changed since."""
BUCKET_GROWTH = 1.19
"""Numbers of rows are told apart in steps of about a fifth."""


class StepCosts(Protocol):
    """Seconds of the two parts of a step, for the choice of draft lengths."""

    def pass_s(self, num_rows: int) -> float:
        """A pass of the model over so many rows; 0 while nothing is known."""

    def draft_s(self, num_requests: int) -> float:
        """One more draft for each of so many requests; 0 while nothing is known."""

    def observe(
        self, num_rows: int, pass_s: float, num_requests: int, num_drafts: int, draft_s: float
    ) -> None:
        """Takes a step without prefill into account.

        Args:
            num_rows: that the model computed.
            pass_s: what that took, sampling and scheduling included.
            num_requests: for which drafts were made.
            num_drafts: most of one request.
            draft_s: what making them took.
        """


class MeasuredCosts:
    """Running estimates by the number of rows, in buckets; between buckets it is interpolated.

    Beyond the largest number measured the cost is taken to stay as it is: so longer drafts are tried, and measured.
    """

    def __init__(self) -> None:
        self._passes = _Table()
        self._drafts = _Table()

    def pass_s(self, num_rows: int) -> float:
        """See `StepCosts`."""
        return self._passes.at(num_rows)

    def draft_s(self, num_requests: int) -> float:
        """See `StepCosts`."""
        return self._drafts.at(num_requests)

    def observe(
        self, num_rows: int, pass_s: float, num_requests: int, num_drafts: int, draft_s: float
    ) -> None:
        """See `StepCosts`."""
        self._passes.add(num_rows, pass_s)
        if num_requests and num_drafts:
            self._drafts.add(num_requests, draft_s / num_drafts)


class _Table:
    """Seconds by a number, ascending in the number: a larger step is never taken to be cheaper than a smaller one."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._seconds: list[float] = []
        self._seen: list[int] = []
        self._now = 0

    def add(self, size: int, seconds: float) -> None:
        """Folds a measurement into its bucket."""
        self._now += 1
        index = self._index(size)
        if index is None:
            index = bisect_left(self._sizes, size)
            self._sizes.insert(index, size)
            self._seconds.insert(index, seconds)
            self._seen.insert(index, self._now)
        else:
            known = self._seconds[index]
            # One slow step, of a busy machine or the first of its kind, does not count in full.
            self._seconds[index] = known + NEW_SHARE * (min(seconds, 2 * known) - known)
            self._seen[index] = self._now
        if not self._now % NUM_FORGOTTEN_STEPS:
            self._forget()

    def at(self, size: int) -> float:
        """The estimate; 0 while nothing is known."""
        sizes, seconds = self._sizes, self._seconds
        if not sizes:
            return 0.0
        index = bisect_left(sizes, size)
        if index == len(sizes):
            return max(seconds)
        if index == 0 or sizes[index] == size:
            return max(seconds[: index + 1])
        low, high = max(seconds[:index]), max(seconds[: index + 1])
        share = (size - sizes[index - 1]) / (sizes[index] - sizes[index - 1])
        return low + share * (high - low)

    def _index(self, size: int) -> int | None:
        """The bucket that a number falls into."""
        place = bisect_left(self._sizes, size)
        for index in (place, place - 1):
            if 0 <= index < len(self._sizes):
                near = self._sizes[index]
                if max(size, near) < min(size, near) * BUCKET_GROWTH:
                    return index
        return None

    def _forget(self) -> None:
        kept = [i for i, seen in enumerate(self._seen) if self._now - seen < NUM_FORGOTTEN_STEPS]
        self._sizes = [self._sizes[i] for i in kept]
        self._seconds = [self._seconds[i] for i in kept]
        self._seen = [self._seen[i] for i in kept]
