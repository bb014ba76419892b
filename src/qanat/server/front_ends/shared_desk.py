"""In a front end: requests are let in and counted by the parent, for all front ends together."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence

from qanat.core.errors import QanatError, RateLimitError
from qanat.core.events import GenerationEvent
from qanat.server import desk
from qanat.server.accounts import Headers, Sizes
from qanat.server.caller import Caller
from qanat.server.errors import UnavailableError
from qanat.server.front_ends.line import Line
from qanat.server.front_ends.words import (
    BeginLease,
    EndLease,
    KeyMetricsAnswer,
    KeyMetricsQuestion,
    OpenLease,
    Refusal,
    UsageAnswer,
    UsageQuestion,
    UseLease,
    Verdict,
)
from qanat.server.generation import Generation
from qanat.server.usage import UsageReport

TELL_PERIOD_S = 0.05
"""How often the parent hears of a request's new output."""
KEY_METRICS_S = 1.0
"""How long the parent may take to tell the counts of keys."""


class SharedDesk:
    """A `Desk`. The parent is asked where the caller has bounds, else only told, which takes no time.

    Args:
        line: to the parent.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._numbers = itertools.count(1)
        self._headers: dict[str, Headers] = {}

    @contextlib.asynccontextmanager
    async def lease(self, caller: Caller, num_sequences: int = 1) -> AsyncIterator[desk.OpenLease]:
        """See `Desk.lease`."""
        number = next(self._numbers)
        lease = _SharedLease(self, self._line, caller, number)
        end = EndLease(number)
        try:
            await self.admit(caller, OpenLease(number, caller, num_sequences))
            yield lease
        except QanatError as error:
            end = EndLease(number, error.code, error.status, error.has_cost)
            raise
        finally:  # also if the client leaves while the parent is being asked
            lease.flush()
            self._line.tell(end)

    async def admit(self, caller: Caller, word: OpenLease | BeginLease) -> None:
        """Says a word about a request; returns if it may go on.

        Raises:
            RateLimitError: a bound of the key is reached.
        """
        if not has_bounds(caller):
            self._line.tell(word)
            return
        verdict = await self._line.ask(word, Verdict)
        self._headers[caller.name] = verdict.headers
        if verdict.obstacle:
            raise RateLimitError(verdict.obstacle, retry_after_s=verdict.retry_after_s)

    def refuse(self, caller: Caller, error: QanatError) -> None:
        """See `Desk.refuse`."""
        self._line.tell(Refusal(caller, error.code))

    def headers(self, caller: Caller) -> Headers:
        """See `Desk.headers`: as the parent said last."""
        return self._headers.get(caller.name, []) if has_bounds(caller) else []

    async def usage(self, caller: Caller) -> UsageReport:
        """See `Desk.usage`."""
        return (await self._line.ask(UsageQuestion(caller), UsageAnswer)).report

    async def key_metrics(self) -> bytes:
        """See `Desk.key_metrics`; nothing if the parent does not answer: figures that are missing are not wrong."""
        try:
            return (await self._line.ask(KeyMetricsQuestion(), KeyMetricsAnswer, KEY_METRICS_S)).text
        except UnavailableError:
            return b""


class _SharedLease:
    """One request; tells of its output now and then."""

    def __init__(self, shared: SharedDesk, line: Line, caller: Caller, number: int) -> None:
        self._desk = shared
        self._line = line
        self._caller = caller
        self._number = number
        self._num_new = 0
        self._num_cached = 0
        self._is_computed = False
        self._timer: asyncio.TimerHandle | None = None

    async def start(self, generations: Sequence[Generation]) -> None:
        """See `OpenLease.start`."""
        await self._desk.admit(self._caller, BeginLease(self._number, Sizes.of(generations)))

    def add(self, event: GenerationEvent) -> None:
        """See `OpenLease.add`."""
        num_new = len(event.token_ids)
        if num_new and event.index == 0 and event.num_output_tokens == num_new:
            self._num_cached += event.num_cached_tokens
        self._num_new += num_new
        self._is_computed |= event.timing is not None and event.timing.prefill_s > 0
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TELL_PERIOD_S, self.flush)

    def flush(self) -> None:
        """Tells what there is to tell."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._line.tell(UseLease(self._number, self._num_new, self._num_cached, self._is_computed))
            self._num_new = self._num_cached = 0


def has_bounds(caller: Caller) -> bool:
    """True if requests of this caller may be refused for its key."""
    return any((caller.max_concurrency, caller.tokens_per_minute, caller.requests_per_minute))
