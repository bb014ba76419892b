from __future__ import annotations

import json
import math

import pytest

from qanat.evals.choices import likeliest, scores_of_letters
from qanat.evals.item import EvalItem
from qanat.evals.likelihood import read_sums
from qanat.evals.prompts import Wording, choice_texts, completion_text, request_text
from qanat.evals.replies import MisfitError

ITEM = EvalItem(
    task="t",
    item_id="0",
    check="choice",
    answers=("B",),
    question="Which?",
    choices=("a long and winding text", "ab", "这"),
)


def echoed(*logprobs: list[float | None]) -> bytes:
    """An answer whose choices come in the wrong order, as the API allows."""
    choices = [{"index": i, "logprobs": {"token_logprobs": values}} for i, values in enumerate(logprobs)]
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    return json.dumps({"choices": choices[::-1], "usage": usage}).encode()


def test_only_the_tokens_behind_the_question_count() -> None:
    answer = echoed([None, -1, -2, -4, -99], [None, -1, -8, -99])
    assert read_sums(answer, [[5, 6, 7, 8], [5, 6, 9]], 2) == ([-6.0, -8.0], {"prompt_tokens": 9})


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (echoed([-3.0]), "takes no notice of echo"),
        (echoed([None, None, -3.0]), "takes no notice of echo"),
        (echoed([None, -1, -2], [None, -1, -2]), "2 choices for 1 prompts"),
        (b'{"choices": [{"index": 0, "logprobs": null}]}', "takes no notice of echo"),
        (b"[]", "another shape"),
    ],
)
def test_a_server_that_does_not_score_prompts_is_told_from_one_that_does(answer: bytes, told: str) -> None:
    with pytest.raises(MisfitError, match=told):
        read_sums(answer, [[1, 2, 3]], 1)


def test_a_letter_counts_with_and_without_a_blank() -> None:
    scores = scores_of_letters(
        {"A": math.log(0.2), " A": math.log(0.1), " B": math.log(0.25), "a": -0.1, "D": -1.0}, 3
    )
    assert scores == pytest.approx({"A": math.log(0.3), "B": math.log(0.25)}), "D is no choice of three"


def test_length_decides_only_where_it_is_asked_to() -> None:
    scores = {"A": -12.0, "B": -4.0, "C": -4.5}
    assert likeliest(ITEM, scores, "likelihood") == "B"
    assert likeliest(ITEM, scores, "likelihood-per-character") == "A", (
        "12 / 23 is less than 4 / 2 and 4.5 / 1"
    )
    assert likeliest(ITEM, {"C": -1.0, "B": -1.0}, "letter") == "B", "the first of equals"
    assert likeliest(ITEM, {}, "letter") is None


def test_each_way_of_scoring_has_its_prompt() -> None:
    likelihood, letter = Wording(scoring="likelihood"), Wording(scoring="letter")
    assert completion_text(ITEM, [ITEM], likelihood) == (
        "Question: Which?\nAnswer: ab\n\nQuestion: Which?\nAnswer:"
    )
    assert choice_texts(ITEM)[1] == " ab"
    listed = "Which?\nA. a long and winding text\nB. ab\nC. 这"
    assert completion_text(ITEM, [ITEM], letter) == (
        f"Question: {listed}\nAnswer: B\n\nQuestion: {listed}\nAnswer:"
    )
    assert request_text(ITEM, letter) == f"{listed}\nAnswer with the letter of the right one only."
    chinese = EvalItem(
        task="t", item_id="1", check="choice", answers=("A",), question="哪个？", choices=("甲", "乙")
    )
    assert completion_text(chinese, (), likelihood) + choice_texts(chinese)[0] == "问题：哪个？\n答案：甲"
