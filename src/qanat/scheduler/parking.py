"""Requests that wait for a running one to compute what they have in common with it, such as siblings of n > 1."""

from __future__ import annotations

from qanat.cache.account import Awaited
from qanat.core.request import RequestStatus
from qanat.scheduler.live_request import LiveRequest
from qanat.scheduler.running_set import RunningSet
from qanat.scheduler.waiting_queue import WaitingQueue


class Parking:
    """Takes requests out of the queue for as long as waiting spares a computation; others go on meanwhile (S14).

    Args:
        waiting: where they come from and go back to, in their old place.
        running: tells how far those are who compute.
        max_parked: so many at most; the next one keeps its place in the queue and is computed like any other.
    """

    def __init__(self, waiting: WaitingQueue, running: RunningSet, max_parked: int) -> None:
        self._waiting = waiting
        self._running = running
        self._max_parked = max_parked
        self._parked: dict[int, tuple[LiveRequest, Awaited]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def take(self, live: LiveRequest, awaited: Awaited) -> bool:
        """Parks the request whose turn it is; False if there is no place."""
        if len(self._parked) >= self._max_parked:
            return False
        self._waiting.pop()
        self._parked[live.number] = live, awaited
        return True

    def discard(self, live: LiveRequest) -> None:
        """Forgets a request; harmless if it is not parked."""
        self._parked.pop(live.number, None)

    def let_out(self) -> None:
        """Puts back whom there is nothing to wait for: what they have in common is there, or nobody works on it.

        What the other has scheduled so far is there in the step that is planned now.
        """
        if not self._parked:
            return
        progress = {
            one.request.request_id: one.request.num_computed_tokens for one in self._running.prefilling
        }
        for live, awaited in list(self._parked.values()):
            if progress.get(awaited.request_id, awaited.num_tokens) >= awaited.num_tokens:
                del self._parked[live.number]
                is_preempted = live.request.status is RequestStatus.PREEMPTED
                self._waiting.push(live, is_preempted=is_preempted)
