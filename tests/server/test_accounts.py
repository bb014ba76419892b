"""Bounds of a key and the counts beside them, on a clock that stands still until it is moved."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.errors import (
    DeadlineError,
    EngineDeadError,
    EngineRestartingError,
    InvalidRequestError,
    NumericError,
    QanatError,
    QueueFullError,
    RateLimitError,
    StructuredOutputError,
)
from qanat.core.events import GenerationEvent
from qanat.core.outputs import RequestTiming
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.server.accounts import MAX_ESTIMATE_S, Account, Accounts, Lease
from qanat.server.bucket import Bucket
from qanat.server.caller import Caller
from qanat.server.errors import UnavailableError
from qanat.server.generation import Generation
from tests.support.fake_clock import FakeClock


def generation(num_prompt_tokens: int, n: int = 1) -> Generation:
    return Generation("id", [1] * num_prompt_tokens, SamplingParams(n=n))


def tokens(count: int, **fields: int) -> GenerationEvent:
    return GenerationEvent(token_ids=[7] * count, **fields)  # type: ignore[arg-type]


@contextlib.contextmanager
def leased(account: Account, *generations: Generation) -> Iterator[Lease]:
    with account.lease() as lease:
        lease.start(generations)
        yield lease


def spend(account: Account, num_prompt_tokens: int, num_output_tokens: int = 0) -> None:
    with leased(account, generation(num_prompt_tokens)) as lease:
        lease.add(tokens(num_output_tokens))


def refusal(account: Account, num_tokens: int = 1, num_sequences: int = 1) -> RateLimitError:
    with pytest.raises(RateLimitError) as caught:
        with leased(account, generation(num_tokens), *[generation(0)] * (num_sequences - 1)):
            pass
    return caught.value


def test_tokens_are_charged_for_prompt_and_output_and_come_back_with_time() -> None:
    clock = FakeClock()
    account = Account(Caller("a", tokens_per_minute=600), clock)
    spend(account, 100, 450)
    account.check(1, 50)
    error = refusal(account, 100)
    assert (
        error.retry_after_s == 5 and "600 tokens per minute" in error.message and "50 left" in error.message
    )
    clock.advance(4.9)
    refusal(account, 100)
    clock.advance(0.2)
    account.check(1, 100)


def test_output_beyond_the_bound_is_waited_for() -> None:
    clock = FakeClock()
    account = Account(Caller("a", tokens_per_minute=60), clock)
    spend(account, 10, 110)
    assert refusal(account).retry_after_s == 61
    clock.advance(61)
    account.check(1, 1)


def test_a_prompt_above_the_bound_goes_when_nothing_else_was_used() -> None:
    clock = FakeClock()
    account = Account(Caller("a", tokens_per_minute=60), clock)
    spend(account, 1)
    assert refusal(account, 1000).retry_after_s == 1
    clock.advance(1)
    spend(account, 1000)
    assert refusal(account).retry_after_s == 941


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.floats(0, 100), st.integers(1, 20_000)), min_size=1, max_size=30),
)
def test_nothing_is_refused_for_ever_and_the_bound_holds_over_time(
    per_minute: int, asks: list[tuple[float, int]]
) -> None:
    clock = FakeClock()
    bucket = Bucket(per_minute, clock)
    used, largest = 0, max(cost for _, cost in asks)
    for pause_s, cost in asks:
        clock.advance(pause_s)
        wait_s = bucket.wait_s(cost)
        assert 0 <= wait_s <= 60 + largest * 60 / per_minute + 1e-6
        if wait_s:
            clock.advance(wait_s + 1e-6)
            assert bucket.wait_s(cost) == 0
        bucket.take(cost)
        used += cost
        # A full bucket, what came in since, and once the part of a cost that exceeds what was there.
        assert used <= per_minute + clock.now_s * per_minute / 60 + largest + 1


def test_requests_per_minute() -> None:
    clock = FakeClock()
    account = Account(Caller("a", requests_per_minute=3), clock)
    for _ in range(3):
        spend(account, 1)
    assert refusal(account).retry_after_s == 20
    clock.advance(20)
    spend(account, 1)


def test_sequences_under_way_are_bounded_and_a_larger_request_runs_alone() -> None:
    clock = FakeClock()
    account = Account(Caller("a", max_concurrency=3), clock)
    with leased(account, generation(1, n=8)):
        assert "8 sequences under way" in refusal(account).message
        clock.advance(30)
    with leased(account, generation(1), generation(1)):
        account.check(1)
        assert refusal(account, num_sequences=2).retry_after_s == 10  # 30 s a request, 3 at a time
    account.check(3)


def test_a_request_that_fails_gives_its_place_back() -> None:
    account = Account(Caller("a", max_concurrency=1), FakeClock())
    with contextlib.suppress(QueueFullError), leased(account, generation(1)):
        raise QueueFullError("full")
    account.check()
    assert (account.num_running, account.num_waiting) == (0, 0)


def test_what_fails_later_stays_charged() -> None:
    account = Account(Caller("a"), FakeClock())
    with contextlib.suppress(InvalidRequestError), leased(account, generation(30)) as lease:
        lease.add(tokens(1, num_output_tokens=1))
        raise InvalidRequestError("no")
    assert (account.num_requests, account.num_prompt_tokens) == (1, 30)


FORM = StructuredOutputsParams(regex="a")


@pytest.mark.parametrize(
    ("error", "fields", "is_charged"),
    [
        (QueueFullError, {}, False),
        (InvalidRequestError, {}, False),
        (EngineDeadError, {}, False),
        (EngineRestartingError, {}, False),
        (UnavailableError, {"structured_outputs": FORM}, False),
        (DeadlineError, {}, False),
        (DeadlineError, {"n": 2}, True),  # the other choice may have been computed
        (DeadlineError, {"structured_outputs": FORM}, True),
        (StructuredOutputError, {"structured_outputs": FORM}, False),
        (NumericError, {}, True),
    ],
)
def test_what_ends_before_anything_is_done_is_not_charged(
    error: type[QanatError], fields: dict[str, Any], is_charged: bool
) -> None:
    account = Account(Caller("a", tokens_per_minute=100, requests_per_minute=10), FakeClock())
    one = Generation("id", [1] * 30, SamplingParams(**fields))
    with contextlib.suppress(error), leased(account, one) as lease:
        lease.add(GenerationEvent(finish_reason=FinishReason.ERROR, timing=RequestTiming(queue_s=5.0)))
        raise error("no")
    assert account.tokens is not None and account.requests is not None
    assert (account.tokens.level(), account.requests.level()) == ((70, 9) if is_charged else (100, 10))
    assert (account.num_requests, account.num_prompt_tokens) == ((1, 30) if is_charged else (0, 0))


@pytest.mark.parametrize("error", [DeadlineError, QueueFullError, StructuredOutputError])
def test_what_was_computed_or_compiled_is_charged_however_it_ends(error: type[QanatError]) -> None:
    account = Account(Caller("a", tokens_per_minute=100, requests_per_minute=10), FakeClock())
    with contextlib.suppress(error), leased(account, generation(30)) as lease:
        lease.add(GenerationEvent(finish_reason=FinishReason.ERROR, timing=RequestTiming(prefill_s=0.5)))
        raise error("too late")
    costly = error("compiled for nothing")
    costly.has_cost = True
    with contextlib.suppress(error), leased(account, generation(30)):
        raise costly
    assert account.tokens is not None and account.requests is not None
    assert (account.tokens.level(), account.requests.level()) == (40, 8)


def test_a_request_holds_its_place_while_it_is_prepared() -> None:
    account = Account(Caller("a", requests_per_minute=1, max_concurrency=3), FakeClock())
    with account.lease() as lease:
        with pytest.raises(RateLimitError, match="1 requests per minute"), account.lease():
            pass
        lease.start([generation(1, n=5)])  # it runs alone
        assert (account.num_sequences, account.num_running, account.num_requests) == (5, 1, 1)
    assert (account.num_sequences, account.num_running, account.num_waiting) == (0, 0, 0)


def test_a_request_that_is_refused_while_it_is_prepared_uses_nothing_up() -> None:
    account = Account(Caller("a", requests_per_minute=1, max_concurrency=1), FakeClock())
    for _ in range(3):
        with pytest.raises(InvalidRequestError), account.lease():
            raise InvalidRequestError("no such field")
    assert (account.num_requests, account.num_sequences, account.num_running) == (0, 0, 0)
    spend(account, 1)


def test_what_generates_nothing_takes_no_place() -> None:
    account = Account(Caller("a", requests_per_minute=2, max_concurrency=1), FakeClock())
    with account.lease(), account.lease(0):
        pass
    assert "2 requests per minute" in refusal(account).message


def test_waits_are_told_as_they_are_and_only_estimates_are_cut() -> None:
    clock = FakeClock()
    account = Account(Caller("a", tokens_per_minute=1, max_concurrency=1), clock)
    with leased(account, generation(1)) as lease:
        lease.add(tokens(30))
        clock.advance(90_000)
    clock.advance(60)
    with leased(account, generation(1)) as lease:
        assert refusal(account).retry_after_s == MAX_ESTIMATE_S
        lease.add(tokens(30))
    error = refusal(account)
    assert error.retry_after_s == 1860 and "in 1860 s" in error.message


def test_a_refused_request_uses_nothing_up() -> None:
    account = Account(
        Caller("a", requests_per_minute=5, tokens_per_minute=10, max_concurrency=1), FakeClock()
    )
    with leased(account, generation(4)), pytest.raises(RateLimitError), leased(account, generation(1)):
        pass
    assert account.requests is not None and account.tokens is not None
    assert (account.requests.level(), account.tokens.level()) == (4, 6)
    assert (account.num_requests, account.num_prompt_tokens) == (1, 4)


def test_continued_output_is_charged_like_a_prompt_and_counted_as_neither() -> None:
    account = Account(Caller("a", tokens_per_minute=600), FakeClock())
    prior = Generation("id", [1] * 10, SamplingParams(n=2, seed=1), output_token_ids=[[5] * 90, None])
    with leased(account, prior):
        pass
    assert account.tokens is not None and account.tokens.level() == 500
    assert (account.num_prompt_tokens, account.num_output_tokens) == (10, 0)


def test_counts_of_a_request() -> None:
    account = Account(Caller("a"), FakeClock())
    with leased(account, generation(10, n=2)) as lease:
        assert (account.num_running, account.num_waiting) == (1, 1)
        lease.add(tokens(0))
        assert account.num_waiting == 1
        lease.add(tokens(2, num_output_tokens=2, num_cached_tokens=8))
        lease.add(tokens(1, num_output_tokens=1, num_cached_tokens=8, index=1))
        lease.add(tokens(1, num_output_tokens=3, num_cached_tokens=8))
        assert (account.num_running, account.num_waiting) == (1, 0)
    assert (account.num_running, account.num_waiting) == (0, 0)
    counts = (account.num_prompt_tokens, account.num_output_tokens, account.num_cached_tokens)
    assert counts == (10, 4, 8)


def test_new_bounds_hold_at_once_and_what_was_used_stays_used() -> None:
    clock = FakeClock()
    accounts = Accounts(clock)
    caller = Caller("a", tokens_per_minute=600)
    spend(accounts.of(caller), 500)
    account = accounts.of(replace(caller, tokens_per_minute=400, requests_per_minute=5))
    assert account is accounts.of(account.caller) and account.tokens is not None
    assert account.tokens.level() == -100
    assert refusal(account).retry_after_s == 16  # 101 tokens at 400 a minute
    assert accounts.of(Caller("a")).tokens is None
    assert [one.caller.name for one in (accounts.of(Caller("Z")), *accounts.all())] == ["Z", "Z", "a"]


def test_headers_say_what_is_left() -> None:
    account = Account(Caller("a", tokens_per_minute=600, requests_per_minute=60), FakeClock())
    spend(account, 100, 600)
    assert dict(account.headers()) == {
        b"x-ratelimit-limit-requests": b"60",
        b"x-ratelimit-remaining-requests": b"59",
        b"x-ratelimit-reset-requests": b"1.000s",
        b"x-ratelimit-limit-tokens": b"600",
        b"x-ratelimit-remaining-tokens": b"0",
        b"x-ratelimit-reset-tokens": b"70.000s",
    }
    assert Account(Caller("a"), FakeClock()).headers() == []
