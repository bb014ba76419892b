"""What a change cost, told from the same items answered before and after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qanat.evals.intervals import Z_95, effective_size, variance

MAX_EXACT_ITEMS = 1000
"""Of changed items; the normal distribution is as good for more."""


@dataclass(frozen=True)
class Comparison:
    """Right and wrong answers of two models to the same items.

    Attributes:
        num_right_before, num_right_after: right answers.
        falls: of each item, right answers before minus right answers after.
        num_samples: answers to each item.
    """

    num_right_before: int
    num_right_after: int
    falls: tuple[int, ...]
    num_samples: int = 1

    @property
    def num_items(self) -> int:
        """Items that were asked."""
        return len(self.falls)

    @property
    def num_lost(self) -> int:
        """Items with fewer right answers after than before."""
        return sum(fall > 0 for fall in self.falls)

    @property
    def num_gained(self) -> int:
        """Items with more."""
        return sum(fall < 0 for fall in self.falls)

    @property
    def loss_points(self) -> float:
        """Percent right before minus percent right after."""
        return 100 * sum(self.falls) / (self.num_samples * self.num_items)

    @property
    def loss_bound_points(self) -> float:
        """Upper end of the 95 % confidence interval of the loss; see `upper_bound`."""
        return self.loss_bound_points_at(Z_95)

    def loss_bound_points_at(self, deviations: float) -> float:
        """Upper end of the two-sided interval that is so many standard deviations wide to each side.

        With several answers an item loses and gains shares of itself, and counts for as many items as
        `effective_size` tells from how far the losses lie apart.
        """
        shares = [fall / self.num_samples for fall in self.falls]
        lost, gained = sum(max(one, 0.0) for one in shares), sum(max(-one, 0.0) for one in shares)
        one_try_variance = (lost + gained) / self.num_items - (sum(shares) / self.num_items) ** 2
        size = effective_size(self.num_items, one_try_variance, variance(shares), self.num_samples)
        scale = size / self.num_items
        return 100 * upper_bound(size, lost * scale, gained * scale, deviations)

    @property
    def chance(self) -> float:
        """How likely so uneven changes are if neither model is better; see `exact_mcnemar` and `sign_flips`."""
        if self.num_samples == 1:
            return exact_mcnemar(self.num_lost, self.num_gained)
        return sign_flips(self.falls)


def compare(before: Sequence[int], after: Sequence[int], num_samples: int = 1) -> Comparison:
    """Counts what two models did with each item.

    Args:
        before: right answers to each item; with one answer, whether it is right.
        after: the same of the other model.
        num_samples: answers to each item.

    Raises:
        ValueError: they did not answer the same items, or none.
    """
    if len(before) != len(after) or not before:
        raise ValueError(f"{len(before)} and {len(after)} answers cannot be compared")
    falls = tuple(int(one) - int(other) for one, other in zip(before, after, strict=True))
    return Comparison(sum(before), sum(after), falls, num_samples)


def exact_mcnemar(num_lost: int, num_gained: int) -> float:
    """Two-sided p value of the exact McNemar test: changed answers fall to either side like a fair coin."""
    changed = num_lost + num_gained
    tail: int = sum(math.comb(changed, k) for k in range(min(num_lost, num_gained) + 1))
    return min(1.0, float(2 * tail / 2**changed))


def sign_flips(falls: Sequence[int]) -> float:
    """Two-sided p value of the paired permutation test: each item's fall could as well have been as large a rise.

    With falls of one it is the exact McNemar test. The sums of all ways to choose signs are counted in one large
    number, a field of it for each sum.
    """
    sizes = [abs(fall) for fall in falls if fall]
    whole, seen = sum(sizes), abs(sum(falls))
    if len(sizes) > MAX_EXACT_ITEMS:
        return math.erfc(seen / math.sqrt(2 * sum(size**2 for size in sizes)))
    width = len(sizes) // 8 + 1  # bytes that no count can overflow
    num_sums = (whole - seen) // 2 + 1
    mask = (1 << 8 * width * num_sums) - 1
    counts = 1
    for size in sizes:
        counts = (counts + (counts << 8 * width * size)) & mask
    fields = counts.to_bytes(width * num_sums, "little")
    tail = sum(
        int.from_bytes(fields[start : start + width], "little") for start in range(0, len(fields), width)
    )
    return min(1.0, float(2 * tail / 2 ** len(sizes)))


def upper_bound(num_items: float, num_lost: float, num_gained: float, deviations: float = Z_95) -> float:
    """Largest loss, as a share of the items, that a two-sided score test does not reject; at 95 % unless said.

    The score interval for a difference of paired proportions (Tango, Statistics in Medicine 17, 1998): unlike the
    textbook one it is not of width zero where no answer changed.
    """
    low, high = (num_lost - num_gained) / num_items, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _score(num_items, num_lost, num_gained, middle) > -deviations:
            low = middle
        else:
            high = middle
    return high


def _score(num_items: float, num_lost: float, num_gained: float, loss: float) -> float:
    """Standard deviations by which the counts lie above a true loss."""
    # Most likely share of gained items if the true loss is `loss`: the positive root of a square equation.
    linear = -num_lost - num_gained + (2 * num_items - num_lost + num_gained) * loss
    constant = -num_gained * loss * (1 - loss)
    gained = (math.sqrt(linear**2 - 8 * num_items * constant) - linear) / (4 * num_items)
    variance = num_items * (2 * gained + loss * (1 - loss))
    return (num_lost - num_gained - num_items * loss) / math.sqrt(variance) if variance > 0 else 0.0
