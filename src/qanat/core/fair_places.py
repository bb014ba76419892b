"""Places for work that not everybody can do at once, given to the owners in turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from qanat.core.errors import QueueFullError


@dataclass(frozen=True, eq=False)
class _Waiter:
    place: asyncio.Future[None]
    size: int


class FairPlaces:
    """So many at a time. Who waits is served in turns of the owners, those of one owner in the order they came.

    An owner with a thousand pieces of work thus makes its own work wait, not that of others. Belongs to one event
    loop.

    Args:
        num_places: at a time.
        max_per_owner: of these, for one owner; None for all. With fewer than all, one owner's long work leaves others
            a place at once.
        max_waiting_size: sum of the sizes of what one owner may have waiting; None for any.
        what: the work in the plural, for the error.
    """

    def __init__(
        self,
        num_places: int,
        *,
        max_per_owner: int | None = None,
        max_waiting_size: int | None = None,
        what: str = "pieces of work",
    ) -> None:
        self._num_free = num_places
        self._max_per_owner = num_places if max_per_owner is None else max_per_owner
        self._max_waiting_size = max_waiting_size
        self._what = what
        self._num_taken: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[_Waiter]] = OrderedDict()  # whose turn it is next comes first

    def num_waiting(self, owner: str) -> int:
        """How many of this owner wait."""
        return len(self._waiting.get(owner, ()))

    @contextlib.asynccontextmanager
    async def place(self, owner: str, size: int = 1) -> AsyncIterator[None]:
        """A place for as long as the context is open; see `enter`."""
        await self.enter(owner, size)
        try:
            yield
        finally:
            self.leave(owner)

    async def enter(self, owner: str, size: int = 1) -> None:
        """Waits for a place, which `leave` gives back. Who is cancelled meanwhile has none.

        Args:
            owner: whose work it is.
            size: what it takes up while it waits, in the unit of `max_waiting_size`.

        Raises:
            QueueFullError: too much of this owner waits.
        """
        if self._num_free and self._may_take(owner) and not self.num_waiting(owner):
            self._take(owner)
            return
        waiters = self._waiting.setdefault(owner, deque())
        if self._max_waiting_size is not None and waiters:
            if sum(waiter.size for waiter in waiters) + size > self._max_waiting_size:
                raise QueueFullError(
                    f"Too many {self._what} of this caller are waiting. Try again later.", retry_after_s=1
                )
        waiter = _Waiter(asyncio.get_running_loop().create_future(), size)
        waiters.append(waiter)
        try:
            await waiter.place
        except asyncio.CancelledError:
            if waiter.place.cancelled():
                self._forget(owner, waiter)
            else:  # it had just been given the place
                self.leave(owner)
            raise

    def leave(self, owner: str) -> None:
        """Gives a place back."""
        self._num_free += 1
        self._num_taken[owner] -= 1
        if not self._num_taken[owner]:
            del self._num_taken[owner]
        self._hand_out()

    def _may_take(self, owner: str) -> bool:
        return self._num_taken[owner] < self._max_per_owner

    def _take(self, owner: str) -> None:
        self._num_free -= 1
        self._num_taken[owner] += 1

    def _forget(self, owner: str, waiter: _Waiter) -> None:
        waiters = self._waiting.get(owner, deque())
        if waiter in waiters:  # else its turn had come between being cancelled and noticing it
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[owner]

    def _hand_out(self) -> None:
        while self._num_free:
            owner = next((owner for owner in self._waiting if self._may_take(owner)), None)
            if owner is None:
                return
            waiters = self._waiting[owner]
            waiter = waiters.popleft()
            if waiters:
                self._waiting.move_to_end(owner)
            else:
                del self._waiting[owner]
            if not waiter.place.done():  # else it was cancelled and has not noticed it yet
                self._take(owner)
                waiter.place.set_result(None)
