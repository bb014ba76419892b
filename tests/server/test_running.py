from __future__ import annotations

import contextlib

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
