"""Who goes first when memory is needed: the item whose loss costs the least recomputation per byte.

What an item saves is the tokens that would be computed again without it, times how often that is expected. How often
is not known, so it is judged by use so far and by age: an item's rank is the queue's age when it was last used plus the
root of its value per byte, and the queue's age is the rank of what went last. With the value itself it is the rule
known as GreedyDual-Size-Frequency; the root leaves more to age, as values are guesses and often far apart.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Ranked(Protocol):
    """What a queue keeps with its items."""

    base: float
    version: int


T = TypeVar("T", bound=Ranked)

MIN_REBUILD = 64


class EvictionQueue(Generic[T]):
    """Items in order of rank, lowest first. An entry whose item has changed meanwhile is passed over.

    Args:
        value: recomputation saved per byte of an item, as things stand; an item of value 0 goes before all others.

    Attributes:
        age: rank of the last item of any value that went.
    """

    def __init__(self, value: Callable[[T], float]) -> None:
        self._value = value
        self._heap: list[tuple[float, int, int, T]] = []
        self._num_pushed = 0
        self.age = 0.0

    def touch(self, item: T) -> None:
        """Notes that an item is used now."""
        item.base = self.age

    def push(self, item: T) -> None:
        """Puts an item in its place, anew if it is there."""
        item.version += 1
        self._num_pushed += 1
        heapq.heappush(self._heap, (self._rank(item), self._num_pushed, item.version, item))

    def discard(self, item: T) -> None:
        """Takes an item out; harmless if it is not there."""
        item.version += 1

    def pop(self, num_items: int) -> T | None:
        """Takes out the lowest item; None if there is none.

        Args:
            num_items: how many there can be at most; entries far beyond are left over from changes and cleared.
        """
        if len(self._heap) > 2 * num_items + MIN_REBUILD:
            self._heap = [entry for entry in self._heap if entry[3].version == entry[2]]
            heapq.heapify(self._heap)
        while self._heap:
            rank, _, version, item = heapq.heappop(self._heap)
            if item.version != version:
                continue
            now = self._rank(item)
            if now > rank:  # it has become worth more since, as a neighbour has gone
                self.push(item)
                continue
            item.version += 1
            self.age = max(self.age, now)
            return item
        return None

    def _rank(self, item: T) -> float:
        value = self._value(item)
        return item.base + math.sqrt(value) if value else 0.0
