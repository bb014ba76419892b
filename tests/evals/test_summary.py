from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.evals.divergence import divergence, kl_nats
from qanat.evals.record import Result
from qanat.evals.summary import comparison, match, score, scores


def result(number: int, verdict: str = "right", **rest: object) -> Result:
    values: dict[str, object] = {"task": "t", "digest": "d", "answer": "x", "extraction": "x", **rest}
    return Result(item_id=str(number), verdict=verdict, **values)  # type: ignore[arg-type]


def test_errors_are_no_answers_and_cut_ones_are_not_right() -> None:
    verdicts = ["right"] * 6 + ["wrong", "cut", "error", "error"]
    row = score([result(number, verdict) for number, verdict in enumerate(verdicts)], 0.95)
    assert (row["items"], row["right"], row["wrong"], row["cut"], row["errors"]) == (10, 6, 1, 1, 2)
    assert row["percent"] == 75.0
    assert row["interval"] == [40.93, 92.85]


def test_nothing_answered_has_no_score() -> None:
    row = score([result(0, "error")], 0.95)
    assert (row["percent"], row["interval"], row["mean_completion_tokens"]) == (None, None, None)


def test_empty_and_unextracted_answers_are_counted() -> None:
    rows = [
        result(0, "wrong", answer=" ", extraction=None),
        result(1, "wrong", extraction=None),
        result(2, "wrong"),
    ]
    row = score(rows, 0.95)
    assert (row["empty"], row["unextracted"]) == (1, 2)


def test_tasks_stand_in_their_order_before_the_sum() -> None:
    table = scores([result(0, task="b"), result(1, task="a"), result(2, "wrong", task="b")], 0.95)
    assert list(table) == ["b", "a", "overall"]
    assert [row["right"] for row in table.values()] == [1, 1, 2]


def test_only_the_same_items_are_compared() -> None:
    before = {one.draw: one for one in (result(0), result(1, digest="other"), result(2, "error"), result(3))}
    pairs = match(before, [result(0, "wrong"), result(1), result(2), result(3), result(4)])
    assert [after.item_id for _, after in pairs.both] == ["0", "3"]
    assert (pairs.num_unanswered, pairs.num_unmatched) == (1, 2)


def test_a_comparison_names_what_changed() -> None:
    before = {one.draw: one for one in [result(n) for n in range(12)] + [result(12, "wrong")]}
    after = [result(n, "wrong" if n < 8 else "right") for n in range(12)] + [result(12)]
    told = comparison(match(before, after), 0.95)
    assert (told["lost"], told["gained"], told["gained_items"]) == (8, 1, [["t", "12"]])
    assert told["p_value"] == pytest.approx(2 * 10 / 2**9)
    assert told["is_real"]
    assert not comparison(match(before, after), 0.99)["is_real"]
    assert told["loss_bound_points"] > told["loss_points"] > 0
    assert told["kl"] is None


def test_kl_of_known_distributions() -> None:
    half = {"a": math.log(0.5), "b": math.log(0.5)}
    skewed = {"a": math.log(0.9), "b": math.log(0.1)}
    assert kl_nats(half, skewed) == pytest.approx(
        0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1), abs=1e-6
    )
    assert kl_nats(half, half) == 0


weights = st.lists(st.integers(1, 1000), min_size=6, max_size=6)


@given(weights, weights)
def test_the_few_likeliest_tokens_never_say_more_than_all(left: list[int], right: list[int]) -> None:
    whole = [{token: w / sum(ws) for token, w in zip("abcdef", ws, strict=True)} for ws in (left, right)]
    true = sum(whole[0][token] * math.log(whole[0][token] / whole[1][token]) for token in "abcdef")
    few = [
        {token: math.log(share) for token, share in sorted(one.items(), key=lambda pair: -pair[1])[:3]}
        for one in whole
    ]
    assert -1e-9 <= kl_nats(*few) <= true + 1e-6


def test_places_count_as_long_as_both_wrote_the_same() -> None:
    chances = ({"a": -0.1}, {"b": -0.2}, {"c": -0.3})
    before = result(0, tokens=("a", "b", "c"), chances=chances)
    same = result(0, tokens=("a", "b", "c"), chances=chances)
    other = result(0, tokens=("a", "x", "c"), chances=chances)
    assert divergence([(before, same)]).num_places == 3  # type: ignore[union-attr]
    assert divergence([(before, other)]).num_places == 2  # type: ignore[union-attr]
    assert divergence([(before, result(0, tokens=("a",), chances=chances[:1], prompt="p"))]) is None


def test_tokens_behind_different_thoughts_are_not_compared() -> None:
    before = result(0, tokens=("5",), chances=({"5": -0.1},), thinking="2 and 3")
    for thinking, tokens, is_compared in (("2 and 3", "5", True), ("2+3", "5", False), ("2+3", "2", False)):
        other = result(0, tokens=(tokens,), chances=({tokens: -0.1},), thinking=thinking)
        assert (divergence([(before, other)]) is not None) == is_compared
    told = [
        result(0, tokens=("<think>", "2"), chances=({"a": -0.1},) * 2, thinking=text)
        for text in ("2+3", "2 and")
    ]
    assert divergence([(told[0], told[1])]).num_places == 2  # type: ignore[union-attr]
