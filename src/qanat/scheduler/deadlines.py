"""Requests that are out of time, or will be before their first token (S12)."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.cache.manager import HybridCacheManager
from qanat.core.timeouts import FIRST_TOKEN, QUEUE, Deadline
from qanat.scheduler.lazy_heap import LazyHeap
from qanat.scheduler.live_request import LiveRequest
from qanat.scheduler.prefill_pace import PrefillPace

MARGIN = 1.25
"""A request is given up early only if it would still be late were its prompt computed faster by this factor."""


@dataclass(frozen=True)
class Missed:
    """A deadline that a request has missed, or cannot keep any more.

    Attributes:
        param: which one, as the field of the API is called.
        message: for the client.
    """

    param: str
    message: str


class Deadlines:
    """Watches the deadlines of all live requests.

    A request that has not begun is looked at when its prompt could just about be computed in time, else at its next
    deadline. So one without hope is told so early, and nothing is computed for it.
    """

    def __init__(self, cache: HybridCacheManager, pace: PrefillPace) -> None:
        self._cache = cache
        self._pace = pace
        self._looks: LazyHeap[LiveRequest] = LazyHeap()

    def add(self, live: LiveRequest) -> None:
        """Watches a request, if it has a deadline."""
        look_s = self._next_look_s(live)
        if look_s is not None:
            self._looks.push((look_s,), live.number, live)

    def discard(self, live: LiveRequest) -> None:
        """Forgets a request."""
        self._looks.discard(live.number)

    def take_missed(self, now_s: float) -> tuple[LiveRequest, Missed] | None:
        """The next request that is out of time, which is then forgotten; None if there is none."""
        while (live := self._looks.peek()) is not None:
            if self._looks.first_key[0] > now_s:
                return None
            self._looks.pop()
            missed = self.missed(live, now_s)
            if missed is not None:
                return live, missed
            open_s = [deadline.end_s for deadline in _open_deadlines(live)]
            if open_s:
                self._looks.push((min(open_s),), live.number, live)
        return None

    def missed(self, live: LiveRequest, now_s: float) -> Missed | None:
        """The deadline that a request has missed or is bound to miss; None while there is hope."""
        for deadline in _open_deadlines(live):
            if deadline.end_s <= now_s:
                return _missed(live, deadline)
        if live.first_scheduled_s is not None or not self._pace.is_measured:
            return None
        for deadline in _open_deadlines(live):
            left_s = MARGIN * (deadline.end_s - now_s)
            if deadline.param == QUEUE or self._prefill_s(live) <= left_s:
                continue
            num_tokens = live.request.num_tokens - self._cache.lookup(live.request).num_tokens
            need_s = num_tokens * self._pace.s_per_token
            if need_s > left_s:
                return _hopeless(deadline, num_tokens, need_s, now_s)
        return None

    def _next_look_s(self, live: LiveRequest) -> float | None:
        deadlines = _open_deadlines(live)
        looks = [deadline.end_s for deadline in deadlines]
        if not looks:
            return None
        if self._pace.is_measured:
            lead_s = self._prefill_s(live) / MARGIN
            looks += [deadline.end_s - lead_s for deadline in deadlines if deadline.param != QUEUE]
        return min(looks)

    def _prefill_s(self, live: LiveRequest) -> float:
        return live.request.num_tokens * self._pace.s_per_token


def _open_deadlines(live: LiveRequest) -> list[Deadline]:
    """Deadlines that still mean something."""
    return [
        one
        for one in live.request.deadlines
        if not (one.param == QUEUE and live.first_scheduled_s is not None)
        and not (one.param == FIRST_TOKEN and live.first_token_s is not None)
    ]


def _missed(live: LiveRequest, deadline: Deadline) -> Missed:
    param = deadline.param
    if param == QUEUE:
        return Missed(param, f"The request waited for its {deadline}. Allow it more time, or try later.")
    if param == FIRST_TOKEN:
        return Missed(param, f"The request had no first token within its {deadline}. Allow it more time.")
    num_tokens = live.request.num_output_tokens
    return Missed(
        param,
        f"The request's deadline passed after {num_tokens} output tokens ({deadline}). Allow it more time.",
    )


def _hopeless(deadline: Deadline, num_tokens: int, need_s: float, now_s: float) -> Missed:
    left_s = max(0.0, deadline.end_s - now_s)
    return Missed(
        deadline.param,
        f"The request cannot keep its {deadline}: {left_s:.3g} s are left, and its {num_tokens} tokens "
        f"need about {need_s:.3g} s until the first output. Nothing was computed for it. Allow it more time, or try "
        "later.",
    )
