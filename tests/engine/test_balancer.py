from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from qanat.engine.balancer import Balancer, Load
from qanat.scheduler.stats import SchedulerStats

LOADS = st.dictionaries(st.integers(0, 7), st.integers(0, 1000), min_size=1)


@given(st.lists(LOADS, min_size=1))
def test_it_chooses_one_that_can_be_asked_and_has_least_to_do(rounds: list[dict[int, int]]) -> None:
    balancer = Balancer()
    for loads in rounds:
        rank = balancer.choose(loads)
        assert loads[rank] == min(loads.values())


@given(st.sets(st.integers(0, 15), min_size=1), st.integers(1, 5))
def test_equals_take_turns(ranks: set[int], num_rounds: int) -> None:
    balancer = Balancer()
    for _ in range(num_rounds):
        assert {balancer.choose(dict.fromkeys(ranks, 3)) for _ in ranks} == ranks


@given(st.integers(1, 6), st.lists(st.integers(1, 500), min_size=1, max_size=60))
def test_no_replica_starves_or_is_flooded(num_replicas: int, sizes: list[int]) -> None:
    """Greedy choice keeps loads that only grow within one request of each other."""
    balancer, loads = Balancer(), dict.fromkeys(range(num_replicas), 0)
    for size in sizes:
        loads[balancer.choose(loads)] += size
    assert max(loads.values()) - min(loads.values()) <= max(sizes)


def test_one_that_has_come_back_gets_its_turn() -> None:
    balancer = Balancer()
    assert [balancer.choose({0: 0}) for _ in range(3)] == [0, 0, 0]
    assert balancer.choose({0: 0, 1: 0}) == 1


def test_tokens_are_those_of_waiting_prompts_and_decoding_rows() -> None:
    load = Load()
    load.add("a", 100)
    load.add("b", 20)
    assert load.num_tokens == 120
    load.begin("a")
    assert load.num_tokens == 21
    load.end("b")
    load.end("a")
    assert load.num_tokens == 0


def test_what_others_have_sent_is_told_by_the_scheduler() -> None:
    load = Load()
    load.hear(SchedulerStats(num_running=3, num_waiting=2, num_waiting_tokens=700))
    assert load.num_tokens == 705
    load.add("a", 50)
    load.hear(SchedulerStats(num_running=3, num_waiting=3, num_waiting_tokens=750))
    assert load.num_tokens == 755, "its own request is not counted twice"
    load.clear()
    assert load.num_tokens == 0


class LoadMachine(RuleBasedStateMachine):
    """A load against plain bookkeeping: it is never negative, and nothing is left when all has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.load = Load()
        self.waiting: dict[str, int] = {}
        self.decoding: set[str] = set()

    @rule(name=st.sampled_from("abcd"), num_tokens=st.integers(1, 1000))
    def add(self, name: str, num_tokens: int) -> None:
        self.load.add(name, num_tokens)
        self.decoding.discard(name)
        self.waiting[name] = num_tokens

    @rule(name=st.sampled_from("abcde"))
    def begin(self, name: str) -> None:
        self.load.begin(name)
        if self.waiting.pop(name, None) is not None:
            self.decoding.add(name)

    @rule(name=st.sampled_from("abcde"))
    def end(self, name: str) -> None:
        self.load.end(name)
        self.waiting.pop(name, None)
        self.decoding.discard(name)

    @rule()
    def clear(self) -> None:
        self.load.clear()
        self.waiting.clear()
        self.decoding.clear()

    @invariant()
    def is_what_is_outstanding(self) -> None:
        assert self.load.num_tokens == sum(self.waiting.values()) + len(self.decoding)


TestLoad = LoadMachine.TestCase


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 5000))), st.integers(0, 9))
def test_it_is_never_below_what_this_front_end_has_sent(
    figures: list[tuple[int, int, int]], num_own: int
) -> None:
    load = Load()
    for name in range(num_own):
        load.add(str(name), 10)
    for running, waiting, tokens in itertools.chain(figures, [(0, 0, 0)]):
        load.hear(SchedulerStats(num_running=running, num_waiting=waiting, num_waiting_tokens=tokens))
        assert load.num_tokens >= 10 * num_own
    assert load.num_tokens == 10 * num_own
