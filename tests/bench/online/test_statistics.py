from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.bench.online.statistics import (
    MAX_RESAMPLED,
    MIN_PARTS,
    Distribution,
    clustered_percentile_interval,
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


def requests_of(source: random.Random, *, is_dependent: bool) -> list[list[float]]:
    """Times of 60 requests with 50 tokens each, uniform from 0 to 1; those of a dependent request are nearly one."""
    parts = []
    for _ in range(60):
        own = source.random()
        parts.append([own + source.random() / 1e6 if is_dependent else source.random() for _ in range(50)])
    return parts


@pytest.mark.parametrize(("is_dependent", "percent"), [(True, 50.0), (True, 90.0), (False, 50.0)])
def test_percentiles_of_tokens_are_as_sure_as_their_requests_let_them_be(
    is_dependent: bool, percent: float
) -> None:
    source, held, naive = random.Random(7), 0, 0
    for seed in range(30):
        parts = requests_of(source, is_dependent=is_dependent)
        ordered = Distribution(sorted(value for part in parts for value in part))
        low, high = clustered_percentile_interval(parts, ordered, percent, seed) or (0.0, 1.0)
        held += low <= percent / 100 <= high
        plain = ordered.percentile_interval(percent)
        assert plain is not None
        naive += plain[0] <= percent / 100 <= plain[1]
    assert held >= 26
    assert naive <= 15 if is_dependent else naive >= 26, (
        "counting tokens as independent is wrong where they are not"
    )


def test_too_few_requests_enclose_no_percentile() -> None:
    source = random.Random(1)
    parts = [[source.random() for _ in range(500)] for _ in range(MIN_PARTS - 1)]
    ordered = Distribution(sorted(value for part in parts for value in part))
    assert clustered_percentile_interval(parts, ordered, 50) is None
    slow = [[0.001] * 99 for _ in range(40)] + [[0.5] * 99]
    ordered = Distribution(sorted(value for part in slow for value in part))
    assert clustered_percentile_interval(slow, ordered, 99) is None, (
        "one request alone has all the slow tokens"
    )
    assert clustered_percentile_interval(slow, ordered, 50) == (0.001, 0.001)


def test_many_requests_need_no_resampling() -> None:
    source = random.Random(2)
    parts = [[source.gauss(source.random(), 0.1)] * 3 for _ in range(MAX_RESAMPLED + 1)]
    ordered = Distribution(sorted(value for part in parts for value in part))
    found = clustered_percentile_interval(parts, ordered, 90)
    alone = Distribution([part[0] for part in sorted(parts)]).percentile_interval(90)
    assert found is not None and alone is not None
    assert found == pytest.approx(alone, abs=0.005), "three equal tokens say as much as one"
