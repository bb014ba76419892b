from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from qanat.bench.online.rate_search import RateSearch


def searched(limit: float, search: RateSearch) -> RateSearch:
    while (rate := search.next_rate()) is not None:
        search.tell(rate, is_met=rate <= limit)
    return search


@given(st.floats(0.01, 1000), st.floats(0.05, 0.5))
def test_the_answer_lies_as_near_to_the_limit_as_was_asked(limit: float, precision: float) -> None:
    found = searched(limit, RateSearch(1.0, precision=precision, max_runs=40))
    assert found.met <= limit < found.missed <= found.met * (1 + precision)


def test_a_search_ends_at_its_bounds() -> None:
    assert searched(1e-9, RateSearch(1.0)).met == 0
    capped = searched(100, RateSearch(1.0, largest=6.0))
    assert (capped.met, capped.missed) == (6.0, math.inf)
    assert searched(100, RateSearch(1.0, max_runs=3)).num_runs == 3


def test_a_lower_rate_that_misses_takes_back_what_a_higher_one_met() -> None:
    search = RateSearch(4.0)
    search.tell(4.0, is_met=True)
    search.tell(3.0, is_met=False)
    assert search.met == 0 and search.next_rate() == 1.5
