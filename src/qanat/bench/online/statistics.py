"""Numbers that describe many values, and how sure they are."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

NUM_RESAMPLES = 400
MAX_RESAMPLED = 5000
"""Of more values the mean's error follows from their deviation as well."""
CONFIDENCE = 0.95
_Z = 1.959964
MIN_PARTS = 10
"""Of fewer requests nothing is said about percentiles of the values inside of them."""


@dataclass(frozen=True)
class Distribution:
    """Values of one unit in order of size; at least one."""

    ordered: Sequence[float]

    @property
    def mean(self) -> float:
        """Their sum by their number."""
        return math.fsum(self.ordered) / len(self.ordered)

    @property
    def deviation(self) -> float:
        """Their standard deviation, as numpy computes it."""
        mean = self.mean
        return math.sqrt(math.fsum((value - mean) ** 2 for value in self.ordered) / len(self.ordered))

    def percentile(self, percent: float) -> float:
        """Linear between neighbours, as numpy computes it; `percent` is in [0, 100]."""
        place = (len(self.ordered) - 1) * percent / 100
        low = int(place)
        high = min(low + 1, len(self.ordered) - 1)
        return self.ordered[low] + (self.ordered[high] - self.ordered[low]) * (place - low)

    def percentile_interval(self, percent: float) -> tuple[float, float] | None:
        """Between which of the values the percentile of the source lies, with 95 % confidence, whatever its shape.

        The number of values below it is binomial. None where no two of so few values enclose it so surely.
        """
        count, share = len(self.ordered), percent / 100
        low, high = _binomial_bounds(count, share)
        if low < 1 or high > count:
            return None
        return self.ordered[low - 1], self.ordered[high - 1]


def _binomial_bounds(count: int, share: float) -> tuple[int, int]:
    """The largest rank that is low enough and the least that is high enough, each with half of the error allowed."""
    tail = (1 - CONFIDENCE) / 2
    if not 0 < share < 1:
        return 0, count + 1
    below, low, high = 0.0, 0, count + 1
    log_share, log_rest = math.log(share), math.log1p(-share)
    for number in range(count + 1):
        log_chance = (
            math.lgamma(count + 1) - math.lgamma(number + 1) - math.lgamma(count - number + 1)
            + number * log_share + (count - number) * log_rest
        )  # fmt: skip
        below += math.exp(log_chance)
        if below <= tail:
            low = number + 1
        if below >= 1 - tail:
            high = number + 1
            break
    return low, high


def mean_interval(
    sums: Sequence[float], counts: Sequence[int] | None = None, seed: int = 0
) -> tuple[float, float] | None:
    """Where the mean of the source lies, with 95 % confidence; None for fewer than two parts.

    Args:
        sums: of each part, such as a request; parts are independent, the values inside of one need not be.
        counts: values of each part; one each unless given.
        seed: of the resampling.
    """
    number = len(sums)
    weights = counts if counts is not None else [1] * number
    total = sum(weights)
    if number < 2 or not total:
        return None
    if number > MAX_RESAMPLED:
        mean = math.fsum(sums) / total
        squares = math.fsum((one - mean * weight) ** 2 for one, weight in zip(sums, weights, strict=True))
        error = _Z * math.sqrt(squares * number / (number - 1)) / total
        return mean - error, mean + error
    source = random.Random(seed)
    places = range(number)
    means = []
    for _ in range(NUM_RESAMPLES):
        chosen = source.choices(places, k=number)
        weight = sum(map(weights.__getitem__, chosen))
        if weight:
            means.append(math.fsum(map(sums.__getitem__, chosen)) / weight)
    spread = Distribution(sorted(means))
    tail = 50 * (1 - CONFIDENCE)
    return spread.percentile(tail), spread.percentile(100 - tail)


def clustered_percentile_interval(
    parts: Sequence[Sequence[float]], ordered: Distribution, percent: float, seed: int = 0
) -> tuple[float, float] | None:
    """Where a percentile of the source lies, with 95 % confidence, if values inside of one part depend on each other.

    How far the share of values below the percentile may be off is told by resampling whole parts (`mean_interval`),
    and the values at the shares so far below and above it are the ends (Woodruff, Journal of the American Statistical
    Association 47, 1952). So each value is looked at once, however often parts are drawn again.

    Args:
        parts: values of each, such as the times between tokens of a request; parts are independent.
        ordered: all of them.
        percent: in [0, 100].
        seed: of the resampling.

    Returns:
        None where so few parts do not enclose it: then an end would be the least or the largest value.
    """
    if len(parts) < MIN_PARTS:
        return None
    value, counts = ordered.percentile(percent), list(map(len, parts))
    less = [sum(one < value for one in part) for part in parts]
    equal = [sum(one == value for one in part) for part in parts]
    # Of many equal values, so many count as lying below that the percentile is where it is.
    counted = (percent / 100 * sum(counts) - sum(less)) / max(1, sum(equal))
    below = [few + min(1.0, max(0.0, counted)) * same for few, same in zip(less, equal, strict=True)]
    ends = mean_interval(below, counts, seed)
    if ends is None:
        return None
    share = sum(below) / sum(counts)
    low, high = (percent + 100 * (end - share) for end in ends)
    if low <= 0 or high >= 100:
        return None
    return ordered.percentile(low), ordered.percentile(high)


_T_975 = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)
"""Student's t for 95 % on both sides, by degrees of freedom from 1 on."""


def student_error(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean of few values (Student's t); infinite for fewer than two."""
    number = len(values)
    if number < 2:
        return math.inf
    mean = math.fsum(values) / number
    variance = math.fsum((value - mean) ** 2 for value in values) / (number - 1)
    degrees = number - 1
    # Beyond the table: Cornish and Fisher's expansion, right to a thousandth from 16 degrees on.
    t = _T_975[degrees - 1] if degrees <= len(_T_975) else _Z + (_Z**3 + _Z) / (4 * degrees)
    return t * math.sqrt(variance / number)


def ranks_differ(first: Sequence[float], second: Sequence[float]) -> float:
    """How many standard errors the second lies above the first by their ranks (Mann and Whitney); 0 for too few."""
    if len(first) < 5 or len(second) < 5:
        return 0.0
    values = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    rank_sum, at = 0.0, 0
    while at < len(values):
        end = at
        while end < len(values) and values[end][0] == values[at][0]:
            end += 1
        rank_sum += sum(mark for _, mark in values[at:end]) * (at + end + 1) / 2
        at = end
    count_a, count_b = len(first), len(second)
    above = rank_sum - count_b * (count_b + 1) / 2
    error = math.sqrt(count_a * count_b * (count_a + count_b + 1) / 12)
    return (above - count_a * count_b / 2) / error
