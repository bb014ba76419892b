"""What each caller has used and may still use: the bounds of its key, and the counts of /usage."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from qanat.core.errors import DeadlineError, QanatError, RateLimitError
from qanat.core.events import GenerationEvent
from qanat.server.bucket import Bucket
from qanat.server.caller import Caller
from qanat.server.generation import Generation

MAX_ESTIMATE_S = 600
"""Longest Retry-After that is only an estimate: of when a running request ends."""
DURATION_WEIGHT = 0.2
"""How much the newest request says about how long the caller's requests take."""

UNAVAILABLE = 503
"""Status of errors that say that the server serves nobody."""

Headers = list[tuple[bytes, bytes]]


class Sizes(msgspec.Struct, frozen=True):
    """What is known of a request once its prompts are.

    Attributes:
        num_sequences: prompts times choices.
        num_prompt_tokens: of all prompts.
        num_prior_tokens: of outputs that are continued.
        has_form: some output must have a form.
    """

    num_sequences: int
    num_prompt_tokens: int
    num_prior_tokens: int
    has_form: bool

    @classmethod
    def of(cls, generations: Sequence[Generation]) -> Sizes:
        """Those of a request for these generations."""
        return cls(
            sum(generation.sampling.n for generation in generations),
            sum(len(generation.prompt_token_ids) for generation in generations),
            sum(len(ids or ()) for generation in generations for ids in generation.output_token_ids),
            any(generation.sampling.structured_outputs is not None for generation in generations),
        )


class Lease:
    """One request that was let in: counts what it uses.

    Attributes:
        is_started: its prompts are known, and it is on its way to the engine.
        is_waiting: it has no output yet.
    """

    def __init__(self, account: Account, num_sequences: int) -> None:
        self._account = account
        self._num_sequences = num_sequences
        self._num_tokens = 0
        self._num_prompt_tokens = 0
        self._is_computed = False
        self._has_form = False
        self.is_started = False
        self.is_waiting = True

    def start(self, generations: Sequence[Generation]) -> None:
        """Charges its prompts, and output that is continued; new output is charged as it comes.

        Raises:
            RateLimitError: see `Account.check`.
        """
        self.begin(Sizes.of(generations))

    def begin(self, sizes: Sizes) -> None:
        """The same, by figures.

        Raises:
            RateLimitError: see `Account.check`.
        """
        account = self._account
        num_tokens = sizes.num_prompt_tokens + sizes.num_prior_tokens
        account.check(sizes.num_sequences, num_tokens, num_held=self._num_sequences)
        self._has_form = sizes.has_form
        account.num_sequences += sizes.num_sequences - self._num_sequences
        self._num_sequences = sizes.num_sequences
        self._charge_tokens(sizes.num_prompt_tokens, sizes.num_prior_tokens)
        self.is_started = True
        account.num_running += 1
        account.num_waiting += 1

    def add(self, event: GenerationEvent) -> None:
        """Takes an event of the engine about it."""
        num_new = len(event.token_ids)
        is_computed = event.timing is not None and event.timing.prefill_s > 0
        is_first = event.index == 0 and event.num_output_tokens == num_new  # the prompt's first news
        self.use(num_new, event.num_cached_tokens if num_new and is_first else 0, is_computed=is_computed)

    def use(self, num_new: int, num_cached: int, *, is_computed: bool) -> None:
        """Takes the same as figures: new output tokens, prompt tokens out of the cache, anything was computed."""
        self._is_computed |= is_computed
        if not num_new:
            return
        account = self._account
        if self.is_waiting:
            self.is_waiting = False
            account.num_waiting -= 1
        account.num_output_tokens += num_new
        account.num_cached_tokens += num_cached
        if account.tokens is not None:
            account.tokens.take(num_new)

    def take_back(self, error: QanatError) -> None:
        """Undoes the charges if this error came before anything was done for the request."""
        if not self._is_free(error):
            return
        self._account.charge_request(-1)
        self._charge_tokens(-self._num_prompt_tokens, self._num_prompt_tokens - self._num_tokens)

    def end(self) -> None:
        """Gives back what the request held."""
        account = self._account
        account.num_sequences -= self._num_sequences
        if self.is_started:
            account.num_running -= 1
            account.num_waiting -= self.is_waiting

    def _is_free(self, error: QanatError) -> bool:
        if not self.is_waiting or self._is_computed or error.has_cost:
            return False
        if isinstance(error, DeadlineError):
            # Of several sequences others may have been computed meanwhile, and a form may have been compiled.
            return self._num_sequences == 1 and not self._has_form
        return error.status < 500 or error.status == UNAVAILABLE

    def _charge_tokens(self, num_prompt_tokens: int, num_prior_tokens: int) -> None:
        account = self._account
        account.num_prompt_tokens += num_prompt_tokens
        self._num_prompt_tokens += num_prompt_tokens
        self._num_tokens += num_prompt_tokens + num_prior_tokens
        if account.tokens is not None:
            account.tokens.take(num_prompt_tokens + num_prior_tokens)


class Account:
    """One caller's bounds and counts, since the server's start.

    Attributes:
        caller: as the key says now.
        num_requests: let in.
        num_sequences: under way, with places kept for those of requests that are being prepared.
        num_running: requests that are on their way to the engine and have not ended.
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
        self.num_sequences = 0
        self.num_running = 0
        self.num_waiting = 0
        self.num_prompt_tokens = 0
        self.num_output_tokens = 0
        self.num_cached_tokens = 0
        self.refused: Counter[str] = Counter()
        self.tokens: Bucket | None = None
        self.requests: Bucket | None = None
        self._clock = clock
        self._duration_s = 0.0
        self.set_caller(caller)

    def set_caller(self, caller: Caller) -> None:
        """Takes over the bounds that the key has now; what was used stays used."""
        self.caller = caller
        self.tokens = _bucket(self.tokens, caller.tokens_per_minute, self._clock)
        self.requests = _bucket(self.requests, caller.requests_per_minute, self._clock)

    def check(self, num_sequences: int = 1, num_tokens: int = 1, *, num_held: int = 0) -> None:
        """Checks a request's size against the bounds of the key; counts nothing.

        Args:
            num_sequences: prompts times choices.
            num_tokens: of its prompts.
            num_held: sequences for which the request has a place already.

        Raises:
            RateLimitError: a bound is reached; with the seconds until it is not.
        """
        name, most = self.caller.name, self.caller.max_concurrency
        num_others = self.num_sequences - num_held
        if most is not None and num_sequences and num_others and num_others + num_sequences > most:
            raise RateLimitError(
                f"The key {name} has {num_others} sequences under way; {num_sequences} more would exceed its "
                f"max_concurrency of {most}. Wait until one ends.",
                retry_after_s=min(MAX_ESTIMATE_S, _whole(self._duration_s / most)),
            )
        if self.tokens is not None and (wait_s := self.tokens.wait_s(num_tokens)):
            raise RateLimitError(
                f"The key {name} may use {self.tokens.per_minute} tokens per minute and has {int(self.tokens.level())} "
                f"left; this prompt of {num_tokens} may go in {_whole(wait_s)} s.",
                retry_after_s=_whole(wait_s),
            )

    @contextlib.contextmanager
    def lease(self, num_sequences: int = 1) -> Iterator[Lease]:
        """Lets a request in, and keeps a place for it while it is prepared and runs.

        The request is charged now, so that those which come while it is prepared find the bounds as it will leave
        them. Its prompts are charged when they are known: see `Lease.start`. What is refused before anything is done
        for it is not charged after all.

        Args:
            num_sequences: to keep a place for until they are known; 0 if it will not generate anything.

        Raises:
            RateLimitError: a bound of the key is reached; with the seconds until it is not.
        """
        self.check(num_sequences)
        if self.requests is not None and (wait_s := self.requests.wait_s(1)):
            raise RateLimitError(
                f"The key {self.caller.name} may send {self.requests.per_minute} requests per minute; the next may go "
                f"in {_whole(wait_s)} s.",
                retry_after_s=_whole(wait_s),
            )
        self.charge_request(1)
        self.num_sequences += num_sequences
        lease = Lease(self, num_sequences)
        start_s = self._clock()
        try:
            yield lease
        except QanatError as error:
            lease.take_back(error)
            raise
        finally:
            lease.end()
            if lease.is_started:
                weight = DURATION_WEIGHT if self._duration_s else 1.0
                self._duration_s += weight * (self._clock() - start_s - self._duration_s)

    def charge_request(self, count: int) -> None:
        """Counts requests; below 0, takes them back."""
        self.num_requests += count
        if self.requests is not None:
            self.requests.take(count)

    def refuse(self, code: str) -> None:
        """Counts a request that was answered with the error that has this code."""
        self.refused[code] += 1

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
    return max(1, math.ceil(seconds))
