"""A bounded queue: lower priorities first, and among equals the owners in turns."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class FairQueue(Generic[ItemT]):
    """What waits, by priority and owner; an owner with a thousand items waits for itself, not others for it.

    Items are compared by identity and are in the queue once. Adding, taking and discarding cost little whatever
    waits, except where the queue is full.

    Args:
        max_items: bound; see `add`.
    """

    def __init__(self, max_items: int) -> None:
        self.max_items = max_items
        self._levels: dict[int, OrderedDict[str, deque[ItemT]]] = {}
        self._num_of_owner: Counter[str] = Counter()
        self._places: dict[int, tuple[int, str]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def num_of(self, owner: str) -> int:
        """How many of this owner wait."""
        return self._num_of_owner[owner]

    def add(self, item: ItemT, priority: int, owner: str) -> ItemT | None:
        """Puts an item behind those of its owner and priority; gives the one that has no place, if one has not.

        That is the item itself, unless somebody in a full queue must yield to it: the last of the owner with most
        items of the lowest standing (the highest number), if that number is higher than `priority`, or it is equal
        and that owner has more waiting than this one with the new item.
        """
        if len(self._places) >= self.max_items:
            victim = self._yielding(priority, owner)
            if victim is None:
                return item
            self.discard(victim)
        else:
            victim = None
        level = self._levels.setdefault(priority, OrderedDict())
        level.setdefault(owner, deque()).append(item)
        self._num_of_owner[owner] += 1
        self._places[id(item)] = (priority, owner)
        return victim

    def _yielding(self, priority: int, owner: str) -> ItemT | None:
        if not self._levels:
            return None
        worst = max(self._levels)
        level = self._levels[worst]
        largest = max(level, key=lambda each: self._num_of_owner[each])
        has_more = self._num_of_owner[largest] > self._num_of_owner[owner] + 1
        return level[largest][-1] if worst > priority or (worst == priority and has_more) else None

    def first(self) -> ItemT | None:
        """Whose turn it is; None if nothing waits."""
        if not self._levels:
            return None
        return next(iter(self._levels[min(self._levels)].values()))[0]

    def take(self) -> ItemT | None:
        """Removes and gives the first; its owner's next turn comes after all others of the priority."""
        item = self.first()
        if item is None:
            return None
        priority, owner = self._places[id(item)]
        self.discard(item)
        level = self._levels.get(priority)
        if level is not None and owner in level:
            level.move_to_end(owner)
        return item

    def discard(self, item: ItemT) -> bool:
        """Removes an item, wherever it is; False if it is not here."""
        place = self._places.pop(id(item), None)
        if place is None:
            return False
        priority, owner = place
        level = self._levels[priority]
        items = level[owner]
        if items[-1] is item:
            items.pop()
        elif items[0] is item:
            items.popleft()
        else:
            items.remove(item)
        if not items:
            del level[owner]
            if not level:
                del self._levels[priority]
        self._num_of_owner[owner] -= 1
        if not self._num_of_owner[owner]:
            del self._num_of_owner[owner]
        return True
