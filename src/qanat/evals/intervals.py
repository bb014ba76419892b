"""How sure a share of right answers is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from statistics import NormalDist

Z_95 = 1.959964
"""Half width of a two-sided 95 % interval, in standard deviations."""


def deviations_of(confidence: float) -> float:
    """Standard deviations to each side of a two-sided interval that holds so large a share, such as 0.95."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def wilson(num_right: float, num_items: float, deviations: float = Z_95) -> tuple[float, float]:
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


def interval_of_mean(
    shares: Sequence[float], num_tries: float, deviations: float = Z_95
) -> tuple[float, float]:
    """Ends of the confidence interval of the mean share of right answers, over items.

    The items are what was drawn at random, and several answers to one of them are no further items. So the interval
    is Wilson's for the size of sample that `effective_size` tells; with one answer an item it is Wilson's itself.

    Args:
        shares: of each item, from 0 to 1.
        num_tries: independent tries that each share is told from.
        deviations: to each side.
    """
    if not shares:
        return 0.0, 1.0
    mean = math.fsum(shares) / len(shares)
    size = effective_size(len(shares), mean * (1 - mean), variance(shares), num_tries)
    return wilson(mean * size, size, deviations)


def effective_size(num_items: int, one_try_variance: float, found_variance: float, num_tries: float) -> float:
    """So many items with one try each would tell as much.

    Never fewer than the items, as more tries cannot tell less, and never more than all tries together. Where nothing
    differs and nothing could, or there is one item only, tries count for nothing: how far items lie apart is not known.

    Args:
        num_items: that were asked.
        one_try_variance: over items, if each had one try.
        found_variance: over items, as it was found.
        num_tries: of each item.
    """
    if num_items < 2 or one_try_variance <= 0:
        return float(num_items)
    gain = one_try_variance / found_variance if found_variance > 0 else math.inf
    return num_items * min(max(gain, 1.0), max(num_tries, 1.0))


def variance(values: Sequence[float]) -> float:
    """Of the population that the values were drawn from; 0 for fewer than two."""
    return statistics.variance(values) if len(values) > 1 else 0.0
