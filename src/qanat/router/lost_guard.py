"""Ends a wait for an engine from outside: it was given up, or the other half of its pair failed."""

from __future__ import annotations

import asyncio
from types import TracebackType

from qanat.router.http.errors import UpstreamBroken, UpstreamError
from qanat.router.lease import Lease


class Interruptible:
    """`with Interruptible() as wait`: after `wait.stop(error)` the error comes out of whatever is awaited inside."""

    __slots__ = ("_task", "_error", "_num_cancelling")

    def __init__(self) -> None:
        self._error: UpstreamError | None = None

    def stop(self, error: UpstreamError) -> None:
        """Ends the wait; only the first error counts."""
        if self._error is None:
            self._error = error
            self._task.cancel()

    def __enter__(self) -> Interruptible:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._num_cancelling = task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stopped, self._error = self._error, self._error or UpstreamError("this wait is over", "")
        if stopped is None:
            return
        # A client that left at the same moment has cancelled once more, and that cancellation goes on.
        if self._task.uncancel() <= self._num_cancelling and kind is asyncio.CancelledError:
            raise stopped from None


class LostGuard(Interruptible):
    """`with LostGuard(lease)`: the engine was given up by the health checks, as if its connection had broken."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease = lease

    def _lost(self, why: str) -> None:
        name = self._lease.endpoint.name
        self.stop(UpstreamBroken(f"endpoint {name} was given up: {why}", name))

    def __enter__(self) -> LostGuard:
        super().__enter__()
        self._lease.when_lost(self._lost)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.when_lost(None)
        super().__exit__(kind, error, trace)
