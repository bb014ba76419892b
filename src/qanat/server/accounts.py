"""What each caller has used and may still use: the bounds of its key, and the counts of /usage."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from qanat.core.errors import InvalidRequestError, QanatError, QueueFullError, RateLimitError
from qanat.core.events import GenerationEvent
from qanat.server.bucket import Bucket
from qanat.server.caller import Caller
from qanat.server.generation import Generation

MAX_RETRY_S = 600
"""Longest Retry-After."""
DURATION_WEIGHT = 0.2
"""How much the newest request says about how long the caller's requests take."""

Headers = list[tuple[bytes, bytes]]


class Lease:
    """One request that was let in: counts what it uses.

    Attributes:
        is_waiting: it has no output yet.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self.is_waiting = True

    def add(self, event: GenerationEvent) -> None:
        """Takes an event of the engine about it."""
        num_new = len(event.token_ids)
        if not num_new:
            return
        account = self._account
        if self.is_waiting:
            self.is_waiting = False
            account.num_waiting -= 1
        account.num_output_tokens += num_new
        if event.index == 0 and event.num_output_tokens == num_new:  # the prompt's first news
            account.num_cached_tokens += event.num_cached_tokens
        if account.tokens is not None:
            account.tokens.take(num_new)


class Account:
    """One caller's bounds and counts, since the server's start.

    Attributes:
        caller: as the key says now.
        num_requests: let in.
        num_running: of those, how many have not ended.
        num_waiting: of the running, how many have no output yet.
        num_prompt_tokens, num_output_tokens: of requests let in; a prompt counts once, however many choices it has.
        num_cached_tokens: prompt tokens that the prefix cache supplied.
        refused: requests that were answered with an error, by its code.
        tokens: what is left of the tokens per minute; None without a bound.
        requests: likewise of the requests per minute.
    """

    def __init__(self, caller: Caller, clock: Callable[[], float] = time.monotonic) -> None:
        self.caller = caller
        self.num_requests = 0
        self.num_running = 0
        self.num_waiting = 0
        self.num_prompt_tokens = 0
        self.num_output_tokens = 0
        self.num_cached_tokens = 0
        self.refused: Counter[str] = Counter()
        self.tokens: Bucket | None = None
        self.requests: Bucket | None = None
        self._clock = clock
        self._num_sequences = 0
        self._duration_s = 0.0
        self.set_caller(caller)

    def set_caller(self, caller: Caller) -> None:
        """Takes over the bounds that the key has now; what was used stays used."""
        self.caller = caller
        self.tokens = _bucket(self.tokens, caller.tokens_per_minute, self._clock)
        self.requests = _bucket(self.requests, caller.requests_per_minute, self._clock)

    def check(self, num_sequences: int = 1, num_tokens: int = 1) -> None:
        """Checks a request against the bounds of the key; counts nothing.

        Args:
            num_sequences: prompts times choices.
            num_tokens: of its prompts.

        Raises:
            RateLimitError: a bound is reached; with the seconds until it is not.
        """
        name, most = self.caller.name, self.caller.max_concurrency
        if most is not None and self._num_sequences and self._num_sequences + num_sequences > most:
            raise RateLimitError(
                f"The key {name} has {self._num_sequences} sequences under way; {num_sequences} more would exceed its "
                f"max_concurrency of {most}. Wait until one ends.",
                retry_after_s=_whole(self._duration_s / most),
            )
        if self.requests is not None and (wait_s := self.requests.wait_s(1)):
            raise RateLimitError(
                f"The key {name} may send {self.requests.per_minute} requests per minute; the next may go in "
                f"{_whole(wait_s)} s.",
                retry_after_s=_whole(wait_s),
            )
        if self.tokens is not None and (wait_s := self.tokens.wait_s(num_tokens)):
            raise RateLimitError(
                f"The key {name} may use {self.tokens.per_minute} tokens per minute and has {int(self.tokens.level())} "
                f"left; this prompt of {num_tokens} may go in {_whole(wait_s)} s.",
                retry_after_s=_whole(wait_s),
            )

    @contextlib.contextmanager
    def lease(self, generations: Sequence[Generation]) -> Iterator[Lease]:
        """Lets a request in and counts it while it runs.

        Its prompts, and output that is continued, are charged now, new output as it comes. What the engine refuses is
        not charged after all.

        Raises:
            RateLimitError: see `check`.
        """
        num_sequences = sum(generation.sampling.n for generation in generations)
        num_tokens = sum(len(generation.prompt_token_ids) for generation in generations)
        num_prior = sum(len(ids or ()) for generation in generations for ids in generation.output_token_ids)
        self.check(num_sequences, num_tokens + num_prior)
        self._charge(1, num_tokens, num_prior)
        lease = Lease(self)
        self.num_running += 1
        self.num_waiting += 1
        self._num_sequences += num_sequences
        start_s = self._clock()
        try:
            yield lease
        except (QueueFullError, InvalidRequestError):
            if lease.is_waiting:
                self._charge(-1, -num_tokens, -num_prior)
            raise
        finally:
            self.num_running -= 1
            self.num_waiting -= lease.is_waiting
            self._num_sequences -= num_sequences
            weight = DURATION_WEIGHT if self._duration_s else 1.0
            self._duration_s += weight * (self._clock() - start_s - self._duration_s)

    def _charge(self, num_requests: int, num_prompt_tokens: int, num_prior_tokens: int) -> None:
        self.num_requests += num_requests
        self.num_prompt_tokens += num_prompt_tokens
        if self.requests is not None:
            self.requests.take(num_requests)
        if self.tokens is not None:
            self.tokens.take(num_prompt_tokens + num_prior_tokens)

    def refuse(self, error: QanatError) -> None:
        """Counts a request that was answered with this error."""
        self.refused[error.code] += 1

    def headers(self) -> Headers:
        """What is left, under the names that OpenAI's clients know; nothing without bounds."""
        headers: Headers = []
        for what, bucket in (("requests", self.requests), ("tokens", self.tokens)):
            if bucket is None:
                continue
            for name, value in (
                ("limit", str(bucket.per_minute)),
                ("remaining", str(max(0, int(bucket.level())))),
                ("reset", f"{bucket.full_in_s():.3f}s"),
            ):
                headers.append((f"x-ratelimit-{name}-{what}".encode(), value.encode()))
        return headers


class Accounts:
    """The accounts of all callers, made when the first request of one comes.

    Attributes:
        since_s: when counting began, in seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self.since_s = time.time()

    def of(self, caller: Caller) -> Account:
        """The caller's account, with the bounds of its key as they are now."""
        account = self._accounts.get(caller.name)
        if account is None:
            account = self._accounts[caller.name] = Account(caller, self._clock)
        elif account.caller != caller:
            account.set_caller(caller)
        return account

    def all(self) -> list[Account]:
        """Every account, by name."""
        return [self._accounts[name] for name in sorted(self._accounts)]


def _bucket(old: Bucket | None, per_minute: int | None, clock: Callable[[], float]) -> Bucket | None:
    if per_minute is None:
        return None
    if old is None:
        return Bucket(per_minute, clock)
    if old.per_minute != per_minute:
        old.set_bound(per_minute)
    return old


def _whole(seconds: float) -> int:
    return min(MAX_RETRY_S, max(1, math.ceil(seconds)))
