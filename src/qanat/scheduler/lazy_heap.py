"""A priority queue from which any item can be removed at little cost."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Item = TypeVar("Item")
Key = tuple[float, ...]

# Removed entries that may stay in the heap before it is rebuilt, beside as many as there are live ones.
SLACK = 64


class LazyHeap(Generic[Item]):
    """Items in order of their keys.

    A removed item stays in the heap until it comes to the top or until the removed ones outnumber the live ones, so
    that every operation costs O(log n) on average and memory stays in proportion to what is live.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Key, int]] = []
        self._items: dict[int, Item] = {}

    def __len__(self) -> int:
        return len(self._items)

    def push(self, key: Key, number: int, item: Item) -> None:
        """Adds an item.

        Args:
            key: smallest first.
            number: the item's own; breaks ties. It must not come back after `discard`.
            item: what `peek` and `pop` return.
        """
        self._items[number] = item
        heapq.heappush(self._heap, (key, number))

    def peek(self) -> Item | None:
        """The first item, which stays; None if there is none."""
        heap, items = self._heap, self._items
        while heap:
            item = items.get(heap[0][1])
            if item is not None:
                return item
            heapq.heappop(heap)
        return None

    @property
    def first_key(self) -> Key:
        """The key of the item that `peek` has just returned."""
        return self._heap[0][0]

    def pop(self) -> Item | None:
        """Removes the first item; None if there is none."""
        item = self.peek()
        if item is not None:
            del self._items[heapq.heappop(self._heap)[1]]
        return item

    def discard(self, number: int) -> bool:
        """Removes the item of this number; False if it is not here."""
        if self._items.pop(number, None) is None:
            return False
        if len(self._heap) > 2 * len(self._items) + SLACK:
            self._heap = [entry for entry in self._heap if entry[1] in self._items]
            heapq.heapify(self._heap)
        return True
