"""A pool of interchangeable ids: the free ones of either kind of cache memory."""

from __future__ import annotations

from collections.abc import Iterable

RESERVED_ID = 0
"""Padding rows read and write here; it is never handed out."""


class IdPool:
    """The free ids among first_id .. end - 1.

    The most recently freed are handed out first: what they name is likely still in a CPU cache.

    Args:
        end: one more than the last id.
        first_id: the first one; by default all but the reserved id 0 belong to the pool.
    """

    def __init__(self, end: int, first_id: int = RESERVED_ID + 1) -> None:
        self._free = list(range(end - 1, first_id - 1, -1))
        self.first_id = first_id
        self.num_usable = len(self._free)

    @property
    def num_free(self) -> int:
        """Ids that can be taken now."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Removes so many ids from the pool; the caller has made sure that they are there."""
        if count == 0:
            return []
        taken = self._free[-count:]
        del self._free[-count:]
        taken.reverse()
        return taken

    def give_back(self, ids: Iterable[int]) -> None:
        """Returns ids to the pool."""
        self._free.extend(ids)

    def free_ids(self) -> list[int]:
        """A copy of the free ids, for checking."""
        return list(self._free)
