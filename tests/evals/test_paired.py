from __future__ import annotations

import math

import pytest

from qanat.evals.intervals import deviations_of, wilson
from qanat.evals.paired import Comparison, compare, exact_mcnemar, upper_bound


def test_counts() -> None:
    before = [True, True, False, False, True]
    after = [True, False, True, False, True]
    assert compare(before, after) == Comparison(3, 3, (0, 1, -1, 0, 0))
    result = compare(before, after)
    assert (result.num_items, result.num_lost, result.num_gained, result.loss_points) == (5, 1, 1, 0)
    with pytest.raises(ValueError, match="cannot be compared"):
        compare(before, after[1:])
    with pytest.raises(ValueError, match="cannot be compared"):
        compare([], [])


def likeliest_gained(num_items: int, num_lost: int, num_gained: int, loss: float) -> float:
    """Share of gained items under which the counts are likeliest if the true loss is `loss`, found by trying."""

    def likelihood(gained: float) -> float:
        same = num_items - num_lost - num_gained
        return (
            num_lost * math.log(gained + loss)
            + num_gained * math.log(gained)
            + same * math.log(1 - 2 * gained - loss)
        )

    return max(((1 - loss) / 2 * step / 20_000 for step in range(1, 20_000)), key=likelihood)


@pytest.mark.parametrize("counts", [(44, 3, 1), (500, 12, 4), (4160, 6, 3)])
def test_the_bound_is_that_of_the_score_test(counts: tuple[int, int, int]) -> None:
    """At the bound the counts lie 1.96 standard deviations below what the loss foretells."""
    num_items, num_lost, num_gained = counts
    loss = upper_bound(*counts)
    gained = likeliest_gained(*counts, loss)
    deviation = math.sqrt(num_items * (2 * gained + loss - loss**2))
    assert (num_lost - num_gained - num_items * loss) / deviation == pytest.approx(-1.96, abs=0.02)


def test_the_bound_without_any_change_is_not_zero() -> None:
    assert upper_bound(4160, 0, 0) == pytest.approx(3.841459 / (4160 + 3.841459), rel=1e-4)


def test_the_bound_lies_above_the_loss_and_shrinks_with_items() -> None:
    bounds = [upper_bound(n, n // 50, n // 100) for n in (200, 1000, 5000, 50000)]
    assert bounds == sorted(bounds, reverse=True)
    assert all(bound > 0.01 for bound in bounds)
    assert bounds[-1] == pytest.approx(0.01 + 1.96 * (0.03 / 50000) ** 0.5, rel=0.02), (
        "as the textbook's, for many"
    )


def test_more_losses_and_fewer_gains_raise_it() -> None:
    assert upper_bound(4160, 6, 3) < upper_bound(4160, 7, 3) < upper_bound(4160, 7, 2)
    assert upper_bound(4160, 0, 2) > 0, "gains may be luck"
    assert upper_bound(10, 10, 0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("lost", "gained", "chance"),
    [
        (0, 0, 1.0),
        (5, 5, 1.0),
        (1, 0, 1.0),
        (6, 0, 2 / 64),
        (10, 2, 2 * (1 + 12 + 66) / 4096),  # sum of the tail of Binomial(12, 1/2)
        (2, 10, 2 * (1 + 12 + 66) / 4096),
    ],
)
def test_the_exact_mcnemar_test_against_known_values(lost: int, gained: int, chance: float) -> None:
    assert exact_mcnemar(lost, gained) == pytest.approx(chance)


def test_mcnemar_of_many_changes_is_near_the_normal_one() -> None:
    deviations = (abs(530 - 470) - 1) / math.sqrt(1000)
    assert exact_mcnemar(530, 470) == pytest.approx(math.erfc(deviations / math.sqrt(2)), abs=1e-3)


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (15, 20, 0.5313, 0.8881), (81, 263, 0.2553, 0.3662)],
)
def test_wilson_against_known_values(right: int, total: int, low: float, high: float) -> None:
    """The last row is the worked example of Newcombe, Statistics in Medicine 17 (1998), table I."""
    assert wilson(right, total) == pytest.approx((low, high), abs=1e-4)


def test_wilson_of_nothing_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_deviations_of_levels() -> None:
    assert deviations_of(0.95) == pytest.approx(1.959964, abs=1e-6)
    assert deviations_of(0.99) == pytest.approx(2.575829, abs=1e-6)
