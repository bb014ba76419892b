"""What a change cost, told from the same items answered before and after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qanat.evals.intervals import Z_95


@dataclass(frozen=True)
class Comparison:
    """Right and wrong answers of two models to the same items.

    Attributes:
        num_items: asked.
        num_right_before, num_right_after: answered rightly.
        num_lost: right before, wrong after.
        num_gained: wrong before, right after.
    """

    num_items: int
    num_right_before: int
    num_right_after: int
    num_lost: int
    num_gained: int

    @property
    def loss_points(self) -> float:
        """Percent right before minus percent right after."""
        return 100 * (self.num_lost - self.num_gained) / self.num_items

    @property
    def loss_bound_points(self) -> float:
        """Upper end of the 95 % confidence interval of the loss; see `upper_bound`."""
        return self.loss_bound_points_at(Z_95)

    def loss_bound_points_at(self, deviations: float) -> float:
        """Upper end of the two-sided interval that is so many standard deviations wide to each side."""
        return 100 * upper_bound(self.num_items, self.num_lost, self.num_gained, deviations)

    @property
    def chance(self) -> float:
        """How likely so uneven a split of the changed answers is if neither model is better; see `exact_mcnemar`."""
        return exact_mcnemar(self.num_lost, self.num_gained)


def compare(before: Sequence[bool], after: Sequence[bool]) -> Comparison:
    """Counts what two models did with each item.

    Raises:
        ValueError: they did not answer the same items, or none.
    """
    if len(before) != len(after) or not before:
        raise ValueError(f"{len(before)} and {len(after)} answers cannot be compared")
    pairs = list(zip(before, after, strict=True))
    return Comparison(
        num_items=len(pairs),
        num_right_before=sum(before),
        num_right_after=sum(after),
        num_lost=pairs.count((True, False)),
        num_gained=pairs.count((False, True)),
    )


def exact_mcnemar(num_lost: int, num_gained: int) -> float:
    """Two-sided p value of the exact McNemar test: changed answers fall to either side like a fair coin."""
    changed = num_lost + num_gained
    tail: int = sum(math.comb(changed, k) for k in range(min(num_lost, num_gained) + 1))
    return min(1.0, float(2 * tail / 2**changed))


def upper_bound(num_items: int, num_lost: int, num_gained: int, deviations: float = Z_95) -> float:
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


def _score(num_items: int, num_lost: int, num_gained: int, loss: float) -> float:
    """Standard deviations by which the counts lie above a true loss."""
    # Most likely share of gained items if the true loss is `loss`: the positive root of a square equation.
    linear = -num_lost - num_gained + (2 * num_items - num_lost + num_gained) * loss
    constant = -num_gained * loss * (1 - loss)
    gained = (math.sqrt(linear**2 - 8 * num_items * constant) - linear) / (4 * num_items)
    variance = num_items * (2 * gained + loss * (1 - loss))
    return (num_lost - num_gained - num_items * loss) / math.sqrt(variance) if variance > 0 else 0.0
