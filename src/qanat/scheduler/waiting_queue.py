"""Requests that wait for a place in the batch."""

from __future__ import annotations

from qanat.scheduler.lazy_heap import LazyHeap
from qanat.scheduler.live_request import LiveRequest


class WaitingQueue:
    """Waiting requests in order of rank; preempted ones go first among those of the same priority.

    Nothing here costs more than O(log n), so a long queue does not slow the steps down.
    """

    def __init__(self) -> None:
        self._heap: LazyHeap[LiveRequest] = LazyHeap()
        self.num_tokens = 0

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, live: LiveRequest, *, is_preempted: bool = False) -> None:
        """Puts a request in its place."""
        priority, arrival_s, _ = live.rank
        self._heap.push((priority, 0 if is_preempted else 1, arrival_s), live.number, live)
        self.num_tokens += live.request.num_tokens

    def peek(self) -> LiveRequest | None:
        """The request whose turn it is; it stays."""
        return self._heap.peek()

    def pop(self) -> LiveRequest | None:
        """Removes the request whose turn it is."""
        live = self._heap.pop()
        if live is not None:
            self.num_tokens -= live.request.num_tokens
        return live

    def discard(self, live: LiveRequest) -> None:
        """Removes a request, wherever it stands; harmless if it does not wait."""
        if self._heap.discard(live.number):
            self.num_tokens -= live.request.num_tokens
