"""Finds the highest rate that meets the bounds: doubled until one does not, then halved between both on a log scale."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

SMALLEST_SHARE = 1 / 256
"""Of the first rate; if that is too much as well, the bounds cannot be met."""


@dataclass
class RateSearch:
    """The state of a search. Ask `next_rate`, measure, `tell` the outcome.

    Attributes:
        start: first rate, in requests a second.
        largest: no rate above it is tried.
        precision: the search ends when the rates around the answer differ by this share.
        max_runs: measurements at most.
        met: the highest rate that met the bounds so far; 0 for none.
        missed: the lowest that did not; infinite for none.
        num_runs: told so far.
    """

    start: float
    largest: float = math.inf
    precision: float = 0.1
    max_runs: int = 12
    met: float = 0.0
    missed: float = field(default=math.inf)
    num_runs: int = 0

    def next_rate(self) -> float | None:
        """The rate to measure next; None when the search is over."""
        if self.num_runs >= self.max_runs or self.met >= self.largest:
            return None
        if not self.num_runs:
            return min(self.start, self.largest)
        if math.isinf(self.missed):
            return min(2 * self.met, self.largest)
        if not self.met:
            return self.missed / 2 if self.missed / 2 >= self.start * SMALLEST_SHARE else None
        if self.missed <= self.met * (1 + self.precision):
            return None
        return math.sqrt(self.met * self.missed)

    def tell(self, rate: float, *, is_met: bool) -> None:
        """Takes the outcome of a measurement; a lower rate that missed its bounds takes back what a higher one met."""
        self.num_runs += 1
        if is_met:
            self.met = max(self.met, rate)
        else:
            self.missed = min(self.missed, rate)
            if self.met >= self.missed:
                self.met = 0.0
