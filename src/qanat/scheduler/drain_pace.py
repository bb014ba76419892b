"""How fast the queue moves, measured while requests wait in it."""

from __future__ import annotations

import math

MEMORY_S = 30.0
"""What was seen so long ago counts for a third of what is seen now."""
MIN_ADMISSIONS = 3.0
"""So many requests must have left the queue, the older ones counting for less, before their pace says anything."""


class DrainPace:
    """Requests that enter the batch per second of a queue that is not empty.

    An empty queue says nothing about how fast one would move, so only time with a queue counts, however long ago it
    was. It is all of what holds a queue up: rows, blocks, prefill and the lengths of outputs.
    """

    def __init__(self) -> None:
        self._waiting_s = 0.0
        self._num_admitted = 0.0
        self._seen_s = 0.0
        self.is_backlogged = False

    def observe(self, now_s: float, num_admitted: int, is_backlogged: bool) -> None:
        """Takes in one step's plan.

        Args:
            now_s: when it was made.
            num_admitted: requests that left the queue for the batch.
            is_backlogged: others had to stay.
        """
        if self.is_backlogged:
            elapsed_s = now_s - self._seen_s
            kept = math.exp(-elapsed_s / MEMORY_S)
            self._waiting_s = self._waiting_s * kept + elapsed_s
            self._num_admitted = self._num_admitted * kept + num_admitted
        self._seen_s = now_s
        self.is_backlogged = is_backlogged

    def pause(self) -> None:
        """The queue is empty, and no step will tell: what passes until the next one is no time with a queue."""
        self.is_backlogged = False

    @property
    def s_per_request(self) -> float | None:
        """Seconds of a queue from one admission to the next; None while too little was seen."""
        if self._num_admitted < MIN_ADMISSIONS or self._waiting_s <= 0.0:
            return None
        return self._waiting_s / self._num_admitted
