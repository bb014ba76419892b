"""The live set: states follow from events in any order, load is given back on every path."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.errors import NotFoundError
from qanat.router.breaker import BreakerRules
from qanat.router.errors import NoEndpointError, UnknownEndpointError
from qanat.router.http.errors import UpstreamUnreachable
from qanat.router.model import Endpoint, EndpointState, Role
from qanat.router.policies import LeastTokens
from qanat.router.pool import Pool
from tests.router.making import DOWN, READY, Clock, call, endpoint


def pool_of(*endpoints: Endpoint, **options: Any) -> Pool:
    pool = Pool(LeastTokens(), **options)
    for each in endpoints:
        pool.add(each)
    return pool


def test_a_drained_endpoint_goes_when_its_last_request_has_ended() -> None:
    one, other = endpoint("a"), endpoint("b")
    pool = pool_of(one, other)
    gone: list[Endpoint] = []
    pool.on_removed(gone.append)
    asked = call({"prompt": "x"})
    lease = pool.lease(one, asked)
    pool.drain(one)
    assert one.state is EndpointState.DRAINING
    assert {pool.choose(asked).endpoint.name for _ in range(5)} == {"b"}
    assert gone == []
    lease.release()
    assert gone == [one] and list(pool.members) == [other]
    with pytest.raises(UnknownEndpointError):
        pool.get("a")


def test_an_idle_endpoint_is_drained_at_once_and_draining_can_be_taken_back() -> None:
    one = endpoint("a")
    pool = pool_of(one)
    with pool.lease(one, call({})):
        pool.drain(one)
        pool.drain(one, False)
        assert one.state is READY
    assert pool.find("a") is one
    pool.drain(one)
    assert pool.find("a") is None


def test_requests_on_an_endpoint_that_is_given_up_are_told_and_others_are_not() -> None:
    one = endpoint("a")
    pool = pool_of(one)
    told: list[str] = []
    with pool.lease(one, call({})) as lease:
        lease.when_lost(told.append)
        pool.set_health(one, False, "it refuses new connections")
        assert told == []
        pool.set_health(one, False, "it moves nothing", is_silent=True)
        assert told == ["it moves nothing"]
    assert one.num_running == 0


def test_one_that_cannot_be_reached_is_out_at_once_and_tried_when_nobody_else_is_there() -> None:
    one, other = endpoint("a"), endpoint("b")
    pool = pool_of(one, other)
    doubted: list[Endpoint] = []
    pool.on_doubt(doubted.append)
    pool.failed(one, UpstreamUnreachable("refused", "a"))
    assert one.state is DOWN and doubted == [one]
    asked = call({})
    assert pool.choose(asked).endpoint is other
    choice = pool.choose(asked, exclude={other})
    assert (choice.endpoint, choice.reason) == (one, "last-resort")


def test_a_silent_one_is_not_tried() -> None:
    one = endpoint("a")
    pool = pool_of(one)
    pool.set_health(one, False, "silent", is_silent=True)
    with pytest.raises(NoEndpointError) as refused:
        pool.choose(call({}))
    assert refused.value.retry_after_s >= 1
    pool.set_health(one, True)
    assert pool.choose(call({})).endpoint is one


def test_after_failures_one_trial_at_a_time_until_they_succeed() -> None:
    clock = Clock()
    one, other = endpoint("a"), endpoint("b")
    pool = pool_of(one, other, rules=BreakerRules(max_consecutive=2, open_s=5, num_trials=1), clock=clock)
    pool.failed(one, "500")
    assert one.state is READY
    old = pool.lease(one, call({}))
    pool.failed(one, "500")
    assert one.state is DOWN and old.endpoint is one  # what runs on it still does not stand in a trial's way
    pool.tick()
    assert one.state is DOWN
    clock.now_s += 5
    pool.tick()
    assert one.state is EndpointState.HALF_OPEN
    asked = call({})
    first = pool.choose(asked)
    assert first == (one, "trial")
    pool.lease(one, asked).release()  # a trial that told nothing
    with pool.lease(one, asked):
        assert pool.choose(asked).endpoint is other
        pool.succeeded(one)
    assert one.state is READY


def test_models_decide_who_fits() -> None:
    pool = pool_of(endpoint("a", models=frozenset({"x"})), endpoint("b", models=frozenset({"y"})))
    assert pool.choose(call({"model": "y"})).endpoint.name == "b"
    with pytest.raises(NotFoundError, match="serves the model 'z'"):
        pool.choose(call({"model": "z"}))
    pool.set_health(pool.get("a"), False, is_silent=True)
    with pytest.raises(NoEndpointError):
        pool.choose(call({"model": "x"}))
    pool.add(endpoint("c"))
    assert pool.choose(call({"model": "z"})).endpoint.name == "c"  # its models are not known


def test_a_model_learned_later_counts_at_once() -> None:
    one = endpoint("a", models=frozenset({"x"}))
    pool = pool_of(one)
    pool.choose(call({"model": "x"}))
    one.models = frozenset({"y"})
    pool.refresh(one)
    with pytest.raises(NotFoundError):
        pool.choose(call({"model": "x"}))


def test_roles_are_exact_and_a_change_of_role_counts_at_once() -> None:
    one = endpoint("a", Role.PREFILL)
    pool = pool_of(one)
    with pytest.raises(NoEndpointError, match="no decode engine can take the request now: none is known"):
        pool.choose(call({}), Role.DECODE)
    one.role = Role.DECODE
    pool.refresh(one)
    assert pool.choose(call({}), Role.DECODE).endpoint is one
    assert pool.is_disaggregated


def test_full_endpoints_are_left_out_while_another_has_room() -> None:
    light, heavy = endpoint("a"), endpoint("b")
    pool = pool_of(light, heavy, max_running=2)
    small, large = call({"prompt": "x", "max_tokens": 1}), call({"prompt": "x" * 90_000, "max_tokens": 9})
    pool.lease(light, small)
    pool.lease(light, small)
    pool.lease(heavy, large)
    assert pool.choose(small).endpoint is heavy


def test_prefill_costs_no_output_and_a_computed_prompt_costs_no_more() -> None:
    prefill, decode = endpoint("p", Role.PREFILL), endpoint("d", Role.DECODE)
    pool = pool_of(prefill, decode)
    asked = call({"prompt": list(range(100)), "max_tokens": 50})
    with pool.lease(prefill, asked), pool.lease(decode, asked) as lease:
        assert (prefill.num_outstanding_tokens, decode.num_outstanding_tokens) == (101, 150)
        lease.tokens(10)
        assert decode.num_outstanding_tokens == 40
        lease.tokens(1000)  # more than expected: it still runs, so it still costs
        assert decode.num_outstanding_tokens == 1
    assert prefill.num_outstanding_tokens == decode.num_outstanding_tokens == 0


def test_the_expected_output_follows_what_was_seen() -> None:
    one = endpoint("a")
    pool = pool_of(one)
    asked = call({"prompt": [1]})
    for _ in range(200):
        with pool.lease(one, asked) as lease:
            lease.tokens(20)
    with pool.lease(one, asked):
        assert one.num_outstanding_tokens <= 1 + 21
    with pool.lease(one, call({"prompt": [1], "max_tokens": 5})):
        assert one.num_outstanding_tokens == 6


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["lease", "tokens", "release", "drain", "back", "down", "silent", "up", "fail", "ok", "tick"]
        ),
        st.integers(0, 3),
        st.integers(0, 400),
    ),
    max_size=80,
)


@given(steps)
def test_counters_return_to_nothing_whatever_happens(script: list[tuple[str, int, int]]) -> None:
    clock = Clock()
    endpoints = [endpoint(f"e{index}") for index in range(4)]
    pool = pool_of(*endpoints, clock=clock, rules=BreakerRules(max_consecutive=2))
    leases = []
    for what, index, number in script:
        each = endpoints[index]
        clock.now_s += number / 100
        if what == "lease":
            asked = call({"prompt": "x" * number, "n": 1 + number % 3})
            try:
                leases.append(pool.lease(pool.choose(asked).endpoint, asked))
            except NoEndpointError:
                assert not any(one.state is READY for one in pool.members)
        elif what == "tokens" and leases:
            leases[number % len(leases)].tokens(number)
        elif what == "release" and leases:
            leases.pop(number % len(leases)).release()
        elif what in ("drain", "back") and each in pool.members:
            pool.drain(each, what == "drain")
        elif what in ("down", "silent", "up"):
            pool.set_health(each, what == "up", what, is_silent=what == "silent")
        elif what == "fail":
            pool.failed(each, "broken")
        elif what == "ok":
            pool.succeeded(each)
        else:
            pool.tick()
        for one in endpoints:
            running = [lease for lease in leases if lease.endpoint is one]
            assert one.num_running == len(running)
            assert one.num_outstanding_tokens >= len(running)
        for one, member in pool.members.items():
            assert one.state is member.state()
    for lease in leases:
        lease.release()
        lease.release()
    assert all(one.num_running == one.num_outstanding_tokens == 0 for one in endpoints)
    assert all(not member.leases and not member.is_draining for member in pool.members.values())


EVENTS = ("+p", "+d", "-p", "-d", "+P", "+D")
"""Endpoints of a role come and go; the capital ones are others, at new addresses."""


def test_pd_007_a_pair_is_found_whenever_one_of_each_lives() -> None:
    """All orders of six comings and goings: the answer depends on who lives now, not on what was."""
    num_served = 0
    for order in itertools.permutations(EVENTS):
        pool = Pool(LeastTokens())
        for event in order:
            name = event[1]
            if event[0] == "+":
                pool.add(endpoint(name, Role.PREFILL if name in "pP" else Role.DECODE))
            elif found := pool.find(name):
                pool.drain(found)
            lives = {each.role for each in pool.members}
            asked = call({"prompt": "x"})
            for role in (Role.PREFILL, Role.DECODE):
                if role in lives:
                    with pool.lease(pool.choose(asked, role).endpoint, asked):
                        num_served += 1
                else:
                    with pytest.raises(NoEndpointError) as refused:
                        pool.choose(asked, role)
                    assert refused.value.retry_after_s >= 1
    assert num_served > 720 * 4
