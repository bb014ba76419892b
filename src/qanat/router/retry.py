"""When another engine is asked: failures of engines, not of requests, within a budget that no storm can exceed."""

from __future__ import annotations

import asyncio

from qanat.router.access_log import Record
from qanat.router.errors import NoEndpointError
from qanat.router.filters import StreamRecomputed
from qanat.router.http.errors import UpstreamBroken, UpstreamError, UpstreamUnreachable
from qanat.router.model import Endpoint, Header
from qanat.router.pool import Pool
from qanat.router.relay_settings import RelaySettings

RETRIED_STATUSES = frozenset((502, 503, 504))
"""Answers of an engine, or of what stands before it, that say nothing about the request."""


class Refusal(UpstreamError):
    """An engine answered with an error; passed on as it is where no other engine can be asked.

    Attributes:
        headers, body: of the engine's answer, whose status is `answer_status`.
    """

    code = "upstream_refused"

    def __init__(self, endpoint_name: str, status: int, headers: list[Header], body: bytes) -> None:
        super().__init__(f"endpoint {endpoint_name} answered {status}", endpoint_name, is_answered=True)
        self.answer_status = status
        self.headers = headers
        self.body = body

    @property
    def is_retried(self) -> bool:
        """Another engine may do better."""
        return self.answer_status in RETRIED_STATUSES


class RetryBudget:
    """Retries of all requests together: a share of the requests, and some to begin with.

    Args:
        share: retries for each request.
        reserve: most that are saved up.
    """

    def __init__(self, share: float = 0.2, reserve: float = 50.0) -> None:
        self._share = share
        self._reserve = reserve
        self._left = reserve

    def deposit(self) -> None:
        """A request came."""
        self._left = min(self._left + self._share, self._reserve)

    def withdraw(self) -> bool:
        """Takes one retry; False if none is left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Attempts:
    """The tries of one request before its first token.

    Args:
        is_repeatable: an engine may have seen the request already; else only one that surely did not is followed
            by another.

    Attributes:
        exclude: endpoints that failed it.
        last: the last failure.
    """

    def __init__(
        self,
        pool: Pool,
        settings: RelaySettings,
        budget: RetryBudget,
        record: Record,
        *,
        is_repeatable: bool = True,
    ) -> None:
        self._is_repeatable = is_repeatable
        self.exclude: set[Endpoint] = set()
        self.last: UpstreamError | None = None
        self._pool = pool
        self._settings = settings
        self._budget = budget
        self._record = record
        self._num_failed = 0
        budget.deposit()

    async def after(self, error: UpstreamError) -> None:
        """Takes note of a failure, and returns when the next try may begin.

        Raises:
            UpstreamError: the failure itself: there is to be no other try.
        """
        note_failure(self._pool, error)
        self.last = error
        endpoint = self._pool.find(error.endpoint_name)
        if endpoint is not None and not isinstance(error, StreamRecomputed):
            self.exclude.add(endpoint)
        if isinstance(error, Refusal) and not error.is_retried:
            raise error
        if not self._is_repeatable and not _is_untouched(error):
            raise error
        self._num_failed += 1
        if self._num_failed > self._settings.max_retries or not self._budget.withdraw():
            raise error
        self._record.num_retries += 1
        if self._num_failed > 1:
            await asyncio.sleep(self._settings.retry_delay_s * 2 ** (self._num_failed - 2))

    async def after_nobody(self, error: NoEndpointError) -> None:
        """Nobody else is there: one that could not be reached, or broke off, is asked again.

        Raises:
            UpstreamError: the last failure, if there was one of another kind.
            NoEndpointError: nobody was there from the first.
        """
        last = self.last
        if last is None:
            raise error
        is_passing = isinstance(last, UpstreamUnreachable | UpstreamBroken)
        if not is_passing or not self.exclude:
            raise last
        self.exclude.clear()
        await asyncio.sleep(self._settings.retry_delay_s)


def _is_untouched(error: UpstreamError) -> bool:
    """The engine did nothing with the request: it never got it, or says so."""
    return error.answer_status == 503 if isinstance(error, Refusal) else not error.is_sent


def note_failure(pool: Pool, error: UpstreamError) -> None:
    """Tells the pool of a failure that is the endpoint's; a refusal below 500 is the request's.

    An engine that gave a request back did what it should.
    """
    endpoint = pool.find(error.endpoint_name)
    if endpoint is None or isinstance(error, StreamRecomputed):
        return
    if isinstance(error, Refusal) and error.answer_status < 500:
        pool.succeeded(endpoint)
    else:
        pool.failed(endpoint, error)
