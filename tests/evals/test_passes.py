from __future__ import annotations

import itertools
import random

import pytest

from qanat.evals.intervals import interval_of_mean, wilson
from qanat.evals.paired import compare, exact_mcnemar, sign_flips
from qanat.evals.passes import pass_at, pass_row


@pytest.mark.parametrize(("num_samples", "num_right"), [(6, 0), (6, 1), (6, 3), (6, 6), (4, 2)])
def test_the_estimate_is_the_share_of_all_choices_of_k_answers(num_samples: int, num_right: int) -> None:
    answers = [True] * num_right + [False] * (num_samples - num_right)
    for k in range(1, num_samples + 1):
        chosen = [any(some) for some in itertools.combinations(answers, k)]
        assert pass_at(num_samples, num_right, k) == pytest.approx(sum(chosen) / len(chosen))


def test_the_estimate_of_one_is_the_share_and_large_counts_do_not_overflow() -> None:
    assert pass_at(200, 37, 1) == pytest.approx(37 / 200)
    assert 0.9999 < pass_at(10_000, 5_000, 100) <= 1
    assert pass_at(10, 1, 10) == 1


@pytest.mark.parametrize("k", [0, 11])
def test_more_tries_than_answers_cannot_be_told(k: int) -> None:
    with pytest.raises(ValueError, match="cannot be told from 10 answers"):
        pass_at(10, 5, k)


def test_items_with_too_few_answers_are_left_out_and_counted() -> None:
    row = pass_row([(4, 4), (4, 0), (2, 1)], (1, 4), 1.96)
    assert (row["1"]["percent"], row["1"]["items"], row["1"]["left_out"]) == (50.0, 3, 0)
    assert (row["4"]["percent"], row["4"]["items"], row["4"]["left_out"]) == (50.0, 2, 1)
    assert pass_row([(1, 1)], (2,), 1.96)["2"]["percent"] is None


@pytest.mark.parametrize(("right", "total"), [(0, 10), (3, 10), (10, 10), (81, 263)])
def test_with_one_answer_an_item_the_interval_is_wilsons(right: int, total: int) -> None:
    shares = [1.0] * right + [0.0] * (total - right)
    assert interval_of_mean(shares, 1) == pytest.approx(wilson(right, total))


def test_answers_to_one_item_are_no_further_items() -> None:
    """Items that are always or never right are told as well by one answer as by a hundred."""
    shares = [1.0] * 20 + [0.0] * 20
    assert interval_of_mean(shares, 100) == pytest.approx(wilson(20, 40))
    assert interval_of_mean([1.0] * 40, 100) == pytest.approx(wilson(40, 40)), "never of width zero"


def test_items_that_are_all_alike_count_for_each_of_their_tries() -> None:
    assert interval_of_mean([0.5] * 40, 10) == pytest.approx(wilson(200, 400))


@pytest.mark.parametrize("k", [1, 5])
def test_the_interval_holds_the_truth_as_often_as_it_says(k: int) -> None:
    """Items from an easy and a hard half; 95 % is told, and what is drawn here is the same in every run."""
    draw = random.Random(7)
    num_held = 0
    truth = sum(1 - (1 - share) ** k for share in (0.15, 0.9)) / 2
    for _ in range(400):
        shares = [draw.choice((0.15, 0.9)) for _ in range(60)]
        counts = [(10, sum(draw.random() < share for _ in range(10))) for share in shares]
        interval = pass_row(counts, (k,), 1.959964)[str(k)]["interval"]
        assert isinstance(interval, list)
        num_held += interval[0] <= 100 * truth <= interval[1]
    assert 0.93 <= num_held / 400 <= 0.99


def test_flips_of_ones_are_mcnemars() -> None:
    for lost, gained in [(0, 0), (6, 0), (10, 2), (2, 10), (40, 41)]:
        assert sign_flips([1] * lost + [0] * 7 + [-1] * gained) == pytest.approx(exact_mcnemar(lost, gained))


def test_flips_are_all_ways_to_choose_signs() -> None:
    falls = [3, -1, 0, 2, 2, -3, 7, 1, 4]
    sizes = [abs(fall) for fall in falls if fall]
    sums = [abs(sum(signs)) for signs in itertools.product(*((size, -size) for size in sizes))]
    assert sign_flips(falls) == pytest.approx(sum(one >= abs(sum(falls)) for one in sums) / len(sums))


def test_many_flips_go_on_where_the_exact_ones_end() -> None:
    exact = sign_flips([2, 3] * 270 + [-3, -2] * 230)
    assert sign_flips([2, 3] * 271 + [-3, -2] * 231) == pytest.approx(exact, abs=0.005)


def test_a_loss_told_from_more_answers_has_a_nearer_bound() -> None:
    draw = random.Random(3)
    before = [sum(draw.random() < 0.6 for _ in range(10)) for _ in range(100)]
    after = [sum(draw.random() < 0.6 for _ in range(10)) for _ in range(100)]
    bound = compare(before, after, 10).loss_bound_points
    single = compare([one > 5 for one in before], [one > 5 for one in after]).loss_bound_points
    assert compare(before, after, 10).loss_points < bound < single


def test_no_change_in_many_answers_is_still_no_proof() -> None:
    same = compare([10] * 50, [10] * 50, 10)
    assert same.loss_bound_points == pytest.approx(compare([1] * 50, [1] * 50).loss_bound_points)
    assert same.chance == 1
