"""Repeated measurements of one thing, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Samples:
    """Values in the order in which they were measured; at least one.

    Attributes:
        values: all of one unit.
    """

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Samples:
        """The samples.

        Raises:
            ValueError: there is none.
        """
        kept = tuple(values)
        if not kept:
            raise ValueError("nothing was measured")
        return cls(kept)

    @property
    def mean(self) -> float:
        """Their sum by their number."""
        return sum(self.values) / len(self.values)

    @property
    def median(self) -> float:
        """The middle one."""
        return self.percentile(50)

    @property
    def spread(self) -> float:
        """Distance between the quartiles as a share of the median; 0 where the median is."""
        median = self.median
        return (self.percentile(75) - self.percentile(25)) / median if median else 0.0

    def percentile(self, percent: float) -> float:
        """Linear between neighbours, as numpy computes it; `percent` is in [0, 100]."""
        ordered = sorted(self.values)
        place = (len(ordered) - 1) * percent / 100
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
