"""Differences between two processes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qanat.core.comparing import differences

NAMES = st.dictionaries(st.sampled_from("abcde"), st.text(max_size=3))


@given(NAMES, NAMES)
def test_differences_are_none_exactly_where_all_is_equal(own: dict[str, str], other: dict[str, str]) -> None:
    found = differences(own, other)
    assert (not found) is (own == other)
    assert len(found) == len([name for name in own.keys() | other.keys() if own.get(name) != other.get(name)])
