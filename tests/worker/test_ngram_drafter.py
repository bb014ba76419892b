"""Drafts from a request's own text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.worker.drafters.ngram import find_drafts


def drafts(tokens: list[int], shortest: int = 2, longest: int = 4, most: int = 3) -> list[int]:
    return find_drafts(np.array(tokens, dtype=np.int32), shortest, longest, most)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 2, 3, 4, 5, 1, 2], [3, 4, 5]),
        ([1, 2, 3, 1, 2, 4, 1, 2], [4, 1, 2]),  # the latest of several
        ([7, 1, 2, 5, 6, 9, 1, 2, 8, 8, 7, 1, 2], [5, 6, 9]),  # the longest goes before the latest
        ([1, 2, 3, 9, 2], []),  # one token is less than the shortest ending
        ([5, 5, 5, 5], [5, 5, 5]),  # what reaches the end goes on with itself
        ([3, 1, 2, 1, 2], [1, 2, 1]),
        ([1], []),
        ([1, 2], []),
    ],
)
def test_what_followed_the_ending(tokens: list[int], expected: list[int]) -> None:
    assert drafts(tokens) == expected


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 3), st.integers(0, 3), st.integers(1, 5))
def test_drafts_follow_the_longest_and_latest_ending(
    tokens: list[int], shortest: int, more: int, most: int
) -> None:
    """The plain search, from the longest ending to the shortest and from the end of the text to its start."""
    expected: list[int] = []
    for length in range(shortest + more, shortest - 1, -1):
        starts = [i for i in range(len(tokens) - length) if tokens[i : i + length] == tokens[-length:]]
        if starts and not expected:
            text = tokens[max(starts) + length :]
            expected = [text[i % len(text)] for i in range(most)]
    assert drafts(tokens, shortest, shortest + more, most) == expected
