"""Where states are kept (P3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qanat.cache.placement import FIRST_SPACED, GRID, Kind, Stop, wanted_stops


def positions(stops: list[Stop]) -> list[int]:
    return [stop.position for stop in stops]


def test_the_last_user_turn_the_reply_and_the_end() -> None:
    stops = wanted_stops(400, boundaries=[200, 390])
    assert stops == [Stop(192, Kind.BOUNDARY), Stop(384, Kind.BOUNDARY)]
    assert wanted_stops(400) == [Stop(384, Kind.PROMPT_END)]


def test_a_prompt_that_ends_on_the_grid_is_kept_whole() -> None:
    assert wanted_stops(128, boundaries=[120]) == [Stop(64, Kind.BOUNDARY), Stop(128, Kind.PROMPT_END)]


def test_where_two_prompts_part() -> None:
    assert wanted_stops(400, junction=140) == [Stop(128, Kind.JUNCTION), Stop(384, Kind.PROMPT_END)]
    assert wanted_stops(400, junction=400) == [Stop(384, Kind.PROMPT_END)], "a repeated prompt parts nowhere"


def test_what_is_there_already_is_not_kept_again() -> None:
    assert positions(wanted_stops(400, start=192, boundaries=[200], junction=200)) == [384]


def test_long_prompts_are_kept_at_doubling_distances() -> None:
    assert positions(wanted_stops(8200)) == [512, 1024, 2048, 4096, 8192]
    assert positions(wanted_stops(8200, boundaries=[4000])) == [512, 1024, 2048, 3968, 8192], (
        "4096 stands close by"
    )


def test_a_prompt_shorter_than_the_grid_is_not_cut() -> None:
    assert wanted_stops(63, boundaries=[10]) == []


@given(
    st.integers(1, 20_000),
    st.integers(0, 300),
    st.lists(st.integers(0, 25_000), max_size=4),
    st.integers(0, 20_000),
)
def test_stops_lie_on_the_grid_in_order_and_are_few(
    num_tokens: int, start: int, boundaries: list[int], junction: int
) -> None:
    stops = positions(wanted_stops(num_tokens, start=start, boundaries=boundaries, junction=junction))
    assert stops == sorted(set(stops))
    assert all(stop % GRID == 0 and start < stop <= num_tokens for stop in stops)
    assert len(stops) <= 2 + len(boundaries) + max(0, (num_tokens // FIRST_SPACED).bit_length())
