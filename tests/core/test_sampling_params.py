"""Settings whose size costs: they are copied to every choice and looked at in every step."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.errors import InvalidRequestError
from qanat.core.sampling_params import MAX_ALLOWED_ENTRIES, SamplingParams


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60))
def test_allowed_tokens_are_kept_once_and_in_order(token_ids: list[int]) -> None:
    allowed = SamplingParams(allowed_token_ids=token_ids).allowed_token_ids
    assert allowed is not None and len(allowed) == len(set(allowed))
    assert allowed == sorted(set(token_ids), key=token_ids.index)
    again = msgspec.structs.replace(SamplingParams(allowed_token_ids=token_ids), n=2)
    assert again.allowed_token_ids == allowed


@pytest.mark.parametrize("n", [1, 2, 128])
def test_allowed_tokens_of_all_choices_are_bounded(n: int) -> None:
    most = MAX_ALLOWED_ENTRIES // n
    assert SamplingParams(n=n, allowed_token_ids=list(range(most)))
    with pytest.raises(InvalidRequestError, match=f"at most {MAX_ALLOWED_ENTRIES} entries") as caught:
        SamplingParams(n=n, allowed_token_ids=list(range(most + 1)))
    assert caught.value.param == "allowed_token_ids" and f"{most + 1} for each of {n}" in caught.value.message


def test_a_list_that_repeats_itself_is_as_long_as_what_it_names() -> None:
    assert SamplingParams(n=16, allowed_token_ids=[5] * 1_000_000).allowed_token_ids == [5]


@pytest.mark.parametrize("allowed", [[4, 7, -1], [4, 7, 100]])
def test_allowed_tokens_are_of_the_vocabulary(allowed: list[int]) -> None:
    SamplingParams(allowed_token_ids=[0, 99]).check_token_ids(100)
    with pytest.raises(InvalidRequestError, match=f"token id {allowed[-1]}; ids run from 0 to 99"):
        SamplingParams(allowed_token_ids=allowed).check_token_ids(100)


@pytest.mark.parametrize("allowed", [[True], ["a"], [1.5], 5, "12"])
def test_allowed_tokens_that_are_no_list_of_numbers(allowed: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(allowed_token_ids=allowed)  # type: ignore[arg-type]
    assert caught.value.param == "allowed_token_ids"
