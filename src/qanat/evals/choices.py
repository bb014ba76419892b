"""Which choice of a question a model holds the likeliest, told from log-probabilities instead of its words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, get_args

from qanat.evals.item import LETTERS, EvalItem

Scoring = Literal["answer", "letter", "likelihood", "likelihood-per-character"]
"""What a choice is judged by: what the model says; the probability that its answer begins with the letter; that it is
the choice's text; the same, each choice's log-probability divided by its length, as longer texts are less likely."""
SCORINGS: tuple[str, ...] = get_args(Scoring)


def scores_of_letters(chances: Mapping[str, float], num_choices: int) -> dict[str, float]:
    """Log-probability of each letter at one place.

    A letter may be several tokens, with a blank before it and without: their probabilities are added.

    Args:
        chances: log-probabilities of the likeliest tokens, by token.
        num_choices: so many letters count.

    Returns:
        By letter; those that no token stands for are missing, and less likely than any that is there.
    """
    scores = {}
    for letter in LETTERS[:num_choices]:
        shares = [math.exp(value) for token, value in chances.items() if token.strip() == letter]
        if total := sum(shares):
            scores[letter] = math.log(total)
    return scores


def likeliest(item: EvalItem, scores: Mapping[str, float], scoring: Scoring) -> str | None:
    """The letter of the best choice, the first of equals; None where no choice has a score.

    Args:
        item: with the choices.
        scores: log-probabilities in nats, by letter.
        scoring: says whether they are divided by the lengths of the choices.
    """

    def score(letter: str) -> float:
        length = max(1, len(item.choices[LETTERS.index(letter)]))
        return scores[letter] / (length if scoring == "likelihood-per-character" else 1)

    return max(sorted(scores), key=score, default=None)
