from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.bench.online.statistics import (
    MAX_RESAMPLED,
    Distribution,
    mean_interval,
    ranks_differ,
    student_error,
)

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(VALUES, st.floats(0, 100))
def test_mean_deviation_and_percentiles_are_numpys(values: list[float], percent: float) -> None:
    found = Distribution(sorted(values))
    assert found.mean == pytest.approx(np.mean(values), abs=1e-6)
    assert found.deviation == pytest.approx(np.std(values), abs=1e-6)
    assert found.percentile(percent) == pytest.approx(np.percentile(values, percent), abs=1e-6)


@pytest.mark.parametrize(("count", "percent"), [(40, 50.0), (200, 90.0), (600, 99.0)])
def test_a_percentiles_interval_holds_the_truth_as_often_as_it_says(count: int, percent: float) -> None:
    source = random.Random(3)
    truth = -math.log(1 - percent / 100)
    hits = 0
    for _ in range(200):
        interval = Distribution(sorted(source.expovariate(1.0) for _ in range(count))).percentile_interval(
            percent
        )
        assert interval is not None
        hits += interval[0] <= truth <= interval[1]
    assert 0.92 * 200 <= hits


def test_too_few_values_have_no_interval() -> None:
    assert Distribution(sorted(range(50))).percentile_interval(99) is None
    assert Distribution([1.0]).percentile_interval(50) is None
    assert mean_interval([1.0]) is None


@pytest.mark.parametrize("count", [60, MAX_RESAMPLED + 1])
def test_a_means_interval_is_that_of_the_deviation_by_parts(count: int) -> None:
    source = random.Random(1)
    counts = [source.randint(1, 9) for _ in range(count)]
    sums = [number * source.gauss(10, 2) for number in counts]
    low, high = mean_interval(sums, counts) or (0.0, 0.0)
    mean = sum(sums) / sum(counts)
    squares = sum((one - mean * number) ** 2 for one, number in zip(sums, counts, strict=True))
    error = 1.96 * math.sqrt(squares) / sum(counts)
    assert low == pytest.approx(mean - error, abs=0.3 * error)
    assert high == pytest.approx(mean + error, abs=0.3 * error)


def test_students_error_follows_the_tables() -> None:
    assert student_error([1.0]) == math.inf
    assert student_error([1.0, 3.0]) == pytest.approx(12.706)
    values = [float(number % 2) for number in range(31)]
    deviation = math.sqrt(sum((one - 15 / 31) ** 2 for one in values) / 30)
    assert student_error(values) == pytest.approx(2.0423 * deviation / math.sqrt(31), rel=2e-3)


def test_ranks_tell_a_shift_from_none() -> None:
    source = random.Random(5)
    same = [source.random() for _ in range(60)]
    assert abs(ranks_differ(same[::2], same[1::2])) < 2.5
    assert ranks_differ(same, [one + 0.5 for one in same]) > 4
    assert ranks_differ([1.0] * 20, [1.0] * 20) == 0
    assert ranks_differ([1.0], [9.0]) == 0
