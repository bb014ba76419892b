"""Who may go on to an engine: at once while there is room, else in a bounded queue, in fair turns."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from qanat.core.errors import DeadlineError, QueueFullError
from qanat.router.fair_queue import FairQueue
from qanat.router.model import Call
from qanat.router.pool import Pool

MAX_RETRY_AFTER_S = 300
_RATE_SPAN_S = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    call: Call
    place: asyncio.Future[None]


class Admission:
    """The router's own queue, before an engine is chosen. Belongs to one event loop.

    Requests for different models wait in lanes of their own, which have their turns too: one whose engines are full
    holds up nobody who wants another. The bound is that of all lanes together.

    Args:
        max_waiting: requests in the queue.
        max_wait_s: longest wait; None for any.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        pool: Pool,
        max_waiting: int = 4096,
        max_wait_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._max_waiting = max_waiting
        self._max_wait_s = max_wait_s
        self._lanes: dict[str | None, FairQueue[_Waiter]] = {}
        self._rate = LeavingRate(clock)
        self.num_waiting = 0
        self.num_refused = 0
        self.num_inside = 0
        pool.on_change(self.hand_out)

    def enter(self, call: Call) -> Visit:
        """`async with` it: waits until the call has room at some engine; open for as long as the call lasts.

        Choose and lease an endpoint before anything else is awaited: the room is kept until then only.

        Raises:
            QueueFullError: on entering: the queue is full; says when to come again, from how fast requests end now.
            DeadlineError: on entering: it waited for as long as it may.
        """
        return Visit(self, call)

    async def begin(self, call: Call) -> None:
        """See `enter`."""
        if call.model in self._lanes or not self._may_pass(call):
            await self._wait(call)
        self.num_inside += 1

    def end(self) -> None:
        """A call that was let in has ended."""
        self.num_inside -= 1
        self._rate.left()

    def _may_pass(self, call: Call) -> bool:
        return self._pool.num_room(call) >= 1 or not self._pool.has_hope(call)

    async def _wait(self, call: Call) -> None:
        lane = self._lanes.get(call.model)
        if lane is None:
            lane = self._lanes[call.model] = FairQueue(self._max_waiting)
        lane.max_items = self._max_waiting - self.num_waiting + len(lane)
        waiter = _Waiter(call, asyncio.get_running_loop().create_future())
        yielding = lane.add(waiter, call.priority, call.key_hash)
        self._drop_if_empty(call.model)
        if yielding is None:
            self.num_waiting += 1
        else:
            self.num_refused += 1
            if yielding is waiter:
                raise self._full()
            if not yielding.place.done():  # else its client has just left
                yielding.place.set_exception(self._full())
        limit_s = _shorter(self._max_wait_s, queue_limit_s(call))
        try:
            async with asyncio.timeout(limit_s):
                await waiter.place
        except TimeoutError:
            self._gave_up(waiter)
            raise DeadlineError(
                f"the request waited {limit_s:g} s in the router's queue for an engine with room",
                retry_after_s=self.retry_after_s(),
            ) from None
        except asyncio.CancelledError:
            self._gave_up(waiter)
            raise
        self._pool.num_reserved -= 1

    def _gave_up(self, waiter: _Waiter) -> None:
        """Its client left, or its time is over: the place goes to the next, if it had just been given one."""
        place = waiter.place
        if place.done() and not place.cancelled():
            if place.exception() is None:
                self._pool.num_reserved -= 1
                self.hand_out()
            return
        lane = self._lanes.get(waiter.call.model)
        if lane is not None and lane.discard(waiter):
            self.num_waiting -= 1
            self._drop_if_empty(waiter.call.model)

    def _drop_if_empty(self, model: str | None) -> None:
        if not self._lanes[model]:
            del self._lanes[model]

    def hand_out(self) -> None:
        """Gives the places that are free to those whose turn it is, one of each lane after the other."""
        if not self.num_waiting:
            return
        lanes = list(self._lanes)
        while lanes:
            for model in lanes[:]:
                lane = self._lanes.get(model)
                first = lane.first() if lane is not None else None
                if lane is None or first is None or not self._may_pass(first.call):
                    lanes.remove(model)
                    continue
                lane.take()
                self.num_waiting -= 1
                self._drop_if_empty(model)
                if not first.place.done():
                    self._pool.num_reserved += 1
                    first.place.set_result(None)

    def retry_after_s(self) -> int:
        """Whole seconds after which who waits now is likely to be through."""
        per_s = self._rate.per_s()
        wait_s = (self.num_waiting + 1) / per_s if per_s else MAX_RETRY_AFTER_S / 10
        return max(1, min(math.ceil(wait_s), MAX_RETRY_AFTER_S))

    def _full(self) -> QueueFullError:
        return QueueFullError(
            f"the router's queue is full ({self._max_waiting} requests wait). Try again later.",
            retry_after_s=self.retry_after_s(),
        )


class Visit:
    """One call's time inside; see `Admission.enter`."""

    __slots__ = ("_admission", "_call")

    def __init__(self, admission: Admission, call: Call) -> None:
        self._admission = admission
        self._call = call

    async def __aenter__(self) -> None:
        await self._admission.begin(self._call)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.end()


class LeavingRate:
    """How many requests end a second, lately: those of the present span of 10 s and of the one before it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begin_s = clock()
        self._num_now = 0
        self._num_before = 0

    def left(self) -> None:
        """A request has ended."""
        self._roll()
        self._num_now += 1

    def per_s(self) -> float:
        """Requests a second; 0 if none ended."""
        self._roll()
        age_s = self._clock() - self._begin_s
        if self._num_before:
            return (self._num_before * (1 - age_s / _RATE_SPAN_S) + self._num_now) / _RATE_SPAN_S
        return self._num_now / max(age_s, 1.0)

    def _roll(self) -> None:
        num_spans = int((self._clock() - self._begin_s) / _RATE_SPAN_S)
        if num_spans:
            self._num_before = self._num_now if num_spans == 1 else 0
            self._num_now = 0
            self._begin_s += num_spans * _RATE_SPAN_S


def queue_limit_s(call: Call) -> float | None:
    """What the request itself allows: `timeout.queue` in seconds, as Qanat's API has it."""
    timeout = (call.fields or {}).get("timeout")
    limit = timeout.get("queue") if isinstance(timeout, dict) else None
    return (
        float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) and limit > 0 else None
    )


def _shorter(left: float | None, right: float | None) -> float | None:
    return left if right is None else right if left is None else min(left, right)
