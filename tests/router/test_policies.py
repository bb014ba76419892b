"""Policies: what each promises, for any figures."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.errors import ConfigError
from qanat.router.lease import Lease
from qanat.router.model import Endpoint
from qanat.router.policies import (
    MAX_AHEAD,
    POLICIES,
    LeastTokens,
    Policy,
    PowerOfTwo,
    PrefixAffinity,
    SessionAffinity,
    load,
    policy_named,
)
from qanat.router.pool import Pool
from tests.router.making import call, endpoint

figures = st.tuples(
    st.integers(0, 50), st.integers(0, 10**6), st.integers(0, 100), st.floats(0.1, 10, allow_nan=False)
)


def made(rows: list[tuple[int, int, int, float]]) -> list[Endpoint]:
    return [
        endpoint(
            f"e{index}", num_running=running, num_outstanding_tokens=tokens, last_turn=turn, weight=weight
        )
        for index, (running, tokens, turn, weight) in enumerate(rows)
    ]


@given(st.lists(figures, min_size=1, max_size=8))
def test_least_tokens_chooses_nobody_with_more_than_another(rows: list[tuple[int, int, int, float]]) -> None:
    candidates = made(rows)
    chosen, reason = LeastTokens().choose(candidates, call({}))
    assert all(load(chosen) <= load(each) for each in candidates)
    assert reason == ("least-tokens" if len(candidates) > 1 else "only-one")


@given(st.lists(figures, min_size=2, max_size=8), st.integers(0, 10**6))
def test_power_of_two_never_chooses_the_most_loaded(
    rows: list[tuple[int, int, int, float]], seed: int
) -> None:
    candidates = made(rows)
    chosen, _ = PowerOfTwo(random.Random(seed)).choose(candidates, call({}))
    assert any(load(chosen) <= load(each) for each in candidates if each is not chosen)


@given(st.lists(figures, min_size=1, max_size=8), st.sampled_from(sorted(POLICIES)))
def test_every_policy_chooses_a_candidate_and_says_why(
    rows: list[tuple[int, int, int, float]], name: str
) -> None:
    candidates = made(rows)
    asked = call({"prompt": "long " * 400, "user": "someone"})
    choice = policy_named(name).choose(candidates, asked)
    assert choice.endpoint in candidates and choice.reason


def test_idle_endpoints_have_their_turns_one_after_the_other() -> None:
    pool = Pool(LeastTokens())
    for name in "abc":
        pool.add(endpoint(name))
    names = []
    for _ in range(9):
        chosen = pool.choose(call({"prompt": "x"})).endpoint
        with pool.lease(chosen, call({"prompt": "x"})):
            names.append(chosen.name)
    assert names == list("abc" * 3)


def test_an_endpoint_of_twice_the_weight_gets_twice_as_much() -> None:
    pool = Pool(LeastTokens())
    pool.add(endpoint("big", weight=2.0))
    pool.add(endpoint("small"))
    leases = []
    for _ in range(300):
        asked = call({"prompt": "x", "max_tokens": 10})
        leases.append(pool.lease(pool.choose(asked).endpoint, asked))
    assert Counter(lease.endpoint.name for lease in leases) == {"big": 200, "small": 100}


def test_a_known_prefix_wins_while_the_load_is_equal() -> None:
    policy = PrefixAffinity()
    first, second = endpoint("a"), endpoint("b")
    asked = call({"prompt": "the same beginning " * 100})
    policy.given(second, asked)
    chosen, reason = policy.choose([first, second], asked)
    assert (chosen, reason) == (second, "prefix-100%")


def test_on_a_miss_load_decides_and_not_how_much_an_endpoint_has_seen() -> None:
    policy = PrefixAffinity()
    seasoned, fresh = endpoint("a", num_outstanding_tokens=10, num_running=1), endpoint("b")
    for number in range(50):
        policy.given(seasoned, call({"prompt": f"{number} " * 1000}))
    chosen, reason = policy.choose([seasoned, fresh], call({"prompt": "never seen " * 100}))
    assert chosen is fresh and reason == "prefix-none,least-tokens"


@given(st.integers(0, 30), st.integers(0, 30))
def test_a_prefix_is_not_followed_beyond_the_limit(ahead: int, behind: int) -> None:
    policy = PrefixAffinity()
    known, other = endpoint("a", num_running=ahead), endpoint("b", num_running=behind)
    asked = call({"prompt": "the same beginning " * 100})
    policy.given(known, asked)
    chosen, _ = policy.choose([known, other], asked)
    assert chosen.num_running <= min(ahead, behind) + MAX_AHEAD


def test_a_longer_wait_outweighs_a_known_prefix() -> None:
    policy = PrefixAffinity()
    asked = call({"prompt": "the same beginning " * 100})
    busy, idle = (
        endpoint("a", num_outstanding_tokens=asked.num_prompt_tokens + 1, num_running=1),
        endpoint("b"),
    )
    policy.given(busy, asked)
    assert policy.choose([busy, idle], asked).endpoint is idle


def test_who_was_forgotten_knows_nothing() -> None:
    policy = PrefixAffinity()
    asked = call({"prompt": "the same beginning " * 100})
    one, other = endpoint("a"), endpoint("b")
    policy.given(one, asked)
    policy.forget(one)
    assert policy.choose([one, other], asked).reason == "prefix-none,least-tokens"


@given(st.text(min_size=1), st.integers(2, 8))
def test_a_session_stays_while_its_endpoint_does(session: str, num_endpoints: int) -> None:
    policy = SessionAffinity()
    candidates = [endpoint(f"e{index}") for index in range(num_endpoints)]
    asked = call({}, session=session)
    chosen = policy.choose(candidates, asked).endpoint
    assert policy.choose(list(reversed(candidates)), asked).endpoint is chosen
    others = [each for each in candidates if each is not chosen]
    without = [each for each in candidates if each is not others[0]]
    assert policy.choose(without, asked).endpoint is chosen
    assert policy.choose(others, asked).endpoint is not chosen


def test_sessions_are_spread_by_weight() -> None:
    policy = SessionAffinity()
    candidates = [endpoint("one"), endpoint("three", weight=3.0)]
    chosen = Counter(
        policy.choose(candidates, call({}, session=f"session {number}")).endpoint.name
        for number in range(2000)
    )
    assert 0.70 < chosen["three"] / 2000 < 0.80


def test_without_a_session_load_decides() -> None:
    busy, idle = endpoint("a", num_outstanding_tokens=5), endpoint("b")
    assert SessionAffinity().choose([busy, idle], call({})).endpoint is idle


def test_an_unknown_policy_is_told_with_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match="--policy best: take one of least-tokens, power-of-two, prefix, session"
    ):
        policy_named("best")


@pytest.mark.parametrize("name", sorted(POLICIES))
@pytest.mark.parametrize("num_at_once", [8, 32, 480])
@pytest.mark.parametrize("kind", ["chat", "long prefill"])
def test_pd_014_a_shared_prefix_does_not_send_everything_to_one(
    name: str, num_at_once: int, kind: str
) -> None:
    """480 requests with one prefix on 8 engines, each as long as the others, so many at once."""
    fields = {"prompt": "shared " * (400 if kind == "chat" else 8000)}
    if kind == "long prefill":
        fields["max_tokens"] = 1
    policy: Policy = PowerOfTwo(random.Random(7)) if name == "power-of-two" else policy_named(name)
    pool = Pool(policy)
    for index in range(8):
        pool.add(endpoint(f"e{index}"))
    running: list[Lease] = []
    for number in range(480):
        if len(running) == num_at_once:
            running.pop(0).release()
        asked = call(fields, session=f"session {number}")
        has_idle = any(not each.num_running for each in pool.members)
        chosen = pool.choose(asked).endpoint
        running.append(pool.lease(chosen, asked))
        if has_idle and name in ("least-tokens", "prefix"):
            assert chosen.num_running <= MAX_AHEAD + 2
    for lease in running:
        lease.release()
    served = [each.num_served for each in pool.members]
    assert max(served) < 2 * min(served)
    assert all(each.num_running == each.num_outstanding_tokens == 0 for each in pool.members)
