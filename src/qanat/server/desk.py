"""Where requests are let in and counted, in this process; `server.front_ends` has the one that processes share."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from qanat.core.errors import QanatError
from qanat.core.events import GenerationEvent
from qanat.server.accounts import Accounts, Headers, Lease
from qanat.server.caller import Caller
from qanat.server.generation import Generation
from qanat.server.usage import UsageReport, key_metrics, usage_report


class OpenLease(Protocol):
    """One request that was let in."""

    async def start(self, generations: Sequence[Generation]) -> None:
        """Charges its prompts; see `qanat.server.accounts.Lease.start`.

        Raises:
            RateLimitError: a bound of the key is reached.
        """
        ...

    def add(self, event: GenerationEvent) -> None:
        """Takes an event of the engine about it."""
        ...


class Desk(Protocol):
    """Holds callers to the bounds of their keys, and counts."""

    def lease(self, caller: Caller, num_sequences: int = 1) -> AbstractAsyncContextManager[OpenLease]:
        """Lets a request in for as long as it runs; see `qanat.server.accounts.Account.lease`.

        Raises:
            RateLimitError: a bound of the key is reached.
        """
        ...

    def refuse(self, caller: Caller, error: QanatError) -> None:
        """Counts a request that was answered with this error."""
        ...

    def headers(self, caller: Caller) -> Headers:
        """What is left of the caller's bounds; nothing without bounds."""
        ...

    async def usage(self, caller: Caller) -> UsageReport:
        """What this caller may see of the counts."""
        ...

    async def key_metrics(self) -> bytes:
        """Counts of all named keys in Prometheus' text format."""
        ...


class LocalDesk:
    """The `Desk` of a server that is one process."""

    def __init__(self) -> None:
        self._accounts = Accounts()

    @contextlib.asynccontextmanager
    async def lease(self, caller: Caller, num_sequences: int = 1) -> AsyncIterator[OpenLease]:
        """See `Desk.lease`."""
        with self._accounts.of(caller).lease(num_sequences) as lease:
            yield _LocalLease(lease)

    def refuse(self, caller: Caller, error: QanatError) -> None:
        """See `Desk.refuse`."""
        self._accounts.of(caller).refuse(error.code)

    def headers(self, caller: Caller) -> Headers:
        """See `Desk.headers`."""
        return self._accounts.of(caller).headers()

    async def usage(self, caller: Caller) -> UsageReport:
        """See `Desk.usage`."""
        return usage_report(self._accounts, caller)

    async def key_metrics(self) -> bytes:
        """See `Desk.key_metrics`."""
        return key_metrics(self._accounts)


class _LocalLease:
    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.add = lease.add

    async def start(self, generations: Sequence[Generation]) -> None:
        self._lease.start(generations)
