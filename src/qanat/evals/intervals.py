"""How sure a share of right answers is."""

from __future__ import annotations

import math
from statistics import NormalDist

Z_95 = 1.959964
"""Half width of a two-sided 95 % interval, in standard deviations."""


def deviations_of(confidence: float) -> float:
    """Standard deviations to each side of a two-sided interval that holds so large a share, such as 0.95."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def wilson(num_right: int, num_items: int, deviations: float = Z_95) -> tuple[float, float]:
    """Ends of the confidence interval of a share, from 0 to 1.

    The score interval (Wilson, Journal of the American Statistical Association 22, 1927): it never leaves 0 to 1 and
    has a width where all answers are right. Without items it says nothing: 0 to 1.
    """
    if not num_items:
        return 0.0, 1.0
    share, square = num_right / num_items, deviations**2
    middle = share + square / (2 * num_items)
    half = deviations * math.sqrt(share * (1 - share) / num_items + square / (4 * num_items**2))
    scale = 1 + square / num_items
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
