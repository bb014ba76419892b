"""Ends the wait for an engine that the health checks have given up, as if its connection had broken."""

from __future__ import annotations

import asyncio
from types import TracebackType

from qanat.router.http.errors import UpstreamBroken
from qanat.router.lease import Lease


class LostGuard:
    """`with LostGuard(lease)`: raises UpstreamBroken out of whatever is awaited inside when the lease is lost."""

    __slots__ = ("_lease", "_task", "_why", "_num_cancelling")

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._why: str | None = None

    def __enter__(self) -> LostGuard:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._num_cancelling = task.cancelling()
        self._lease.when_lost(self._on_lost)
        return self

    def _on_lost(self, why: str) -> None:
        if self._why is None:
            self._why = why
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.when_lost(None)
        if self._why is None:
            return
        # A client that left at the same moment has cancelled once more, and that cancellation goes on.
        if self._task.uncancel() <= self._num_cancelling and kind is asyncio.CancelledError:
            name = self._lease.endpoint.name
            raise UpstreamBroken(f"endpoint {name} was given up: {self._why}", name) from None
