from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from qanat.server.running import RunningRequests

NAMES = st.sampled_from("abc")


@given(st.lists(st.tuples(st.sets(NAMES, min_size=1), st.integers(1, 3), st.booleans())))
def test_an_id_finds_what_runs_under_it_and_nothing_else(requests: list[tuple[set[str], int, bool]]) -> None:
    running = RunningRequests()
    open_ids: dict[str, set[str]] = {}
    with contextlib.ExitStack() as stack:
        for number, (names, num_generations, is_kept) in enumerate(requests):
            ids = [f"{number}-{i}" for i in range(num_generations)]
            entry = running.listed(names, ids)
            if is_kept:
                stack.enter_context(entry)
                for name in names:
                    open_ids.setdefault(name, set()).update(ids)
            else:
                with entry:
                    assert all(set(ids) <= set(running.find(name)) for name in names)
            for name in "abc":
                assert set(running.find(name)) == open_ids.get(name, set())
    assert len(running) == 0


class _CountedId(str):
    """An id that counts how often any of its kind is compared."""

    num_comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _CountedId.num_comparisons += 1
        return str.__eq__(self, other)


def _counted(num: int, prefix: str) -> Iterator[_CountedId]:
    return (_CountedId(f"{prefix}{i}") for i in range(num))


def test_leaving_costs_in_proportion_to_the_prompts_of_the_request() -> None:
    running = RunningRequests()
    with running.listed(["a"], _counted(500, "other")):
        with running.listed(["a", "b"], _counted(1000, "own")):
            _CountedId.num_comparisons = 0
        assert _CountedId.num_comparisons < 10_000  # each with each would be a million
        assert len(running.find("a")) == 500 and not running.find("b")
