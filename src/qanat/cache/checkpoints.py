"""Checkpoints of recurrent states: immutable copies at multiples of the grid, so many as the budget has room for."""

from __future__ import annotations

from collections.abc import Iterable

from qanat.cache.eviction import EvictionQueue
from qanat.cache.id_pool import IdPool
from qanat.cache.index import CachedBlock
from qanat.cache.placement import Kind
from qanat.core.errors import IntegrityError

PRIOR_USES = 0.5
PRIOR_CHECKPOINTS = 1.0
"""A kind of which nothing is known counts as if so many of so many checkpoints had been used."""
LEAST_EXPECTED, MAX_EXPECTED = 0.1, 4
"""Further uses that are expected of a checkpoint that was used once, and at most."""
MAX_COUNTED = 256.0
"""Counts of a kind are halved beyond, so that what happened lately weighs more."""


class Checkpoint:
    """The state after the last token of a cached block.

    Attributes:
        block: the block.
        state_id: where the copy lies.
        kind: why it was made.
        num_uses: hits that began from it.
        base: the age of the queue when it was last used.
        version: counts changes of its rank in the queue.
    """

    __slots__ = ("base", "block", "kind", "num_uses", "state_id", "version")

    def __init__(self, block: CachedBlock, state_id: int, kind: Kind) -> None:
        self.block = block
        self.state_id = state_id
        self.kind = kind
        self.num_uses = 0
        self.base = 0.0
        self.version = 0

    @property
    def saved_tokens(self) -> int:
        """Tokens that would have to be computed again without it: those since the checkpoint before."""
        before = self.block.parent
        while before is not None and before.checkpoint is None:
            before = before.parent
        return self.block.end - (before.end if before is not None else 0)


class CheckpointPool:
    """Owns the places of checkpoints; when all are taken, the one that is worth least makes room.

    Args:
        first_id: state ids from here on are for checkpoints.
        num_places: how many there are.
        state_bytes: of one.
    """

    def __init__(self, first_id: int, num_places: int, state_bytes: int) -> None:
        self._places = IdPool(first_id + num_places, first_id)
        self._queue: EvictionQueue[Checkpoint] = EvictionQueue(self._value_per_byte)
        self._state_bytes = state_bytes
        self._num_made = dict.fromkeys(Kind, 0.0)
        self._num_used = dict.fromkeys(Kind, 0.0)
        self.num_evicted = 0

    @property
    def num_places(self) -> int:
        """Checkpoints that there can be."""
        return self._places.num_usable

    @property
    def num_kept(self) -> int:
        """Checkpoints that there are."""
        return self._places.num_usable - self._places.num_free

    @property
    def num_free(self) -> int:
        """Places that nothing has to be evicted from."""
        return self._places.num_free

    def reserve(self) -> int | None:
        """A place for a state that is not there yet; to be given to `make` or `give_back`. None if there is none."""
        if not self._places.num_free and not self._evict():
            return None
        return self._places.take(1)[0]

    def give_back(self, state_id: int) -> None:
        """Returns a place that was reserved."""
        self._places.give_back([state_id])

    def make(self, block: CachedBlock, kind: Kind, state_id: int | None = None) -> Checkpoint | None:
        """A place for the state at the end of a block that has none; None if there is none.

        Args:
            block: the block.
            kind: why it is kept.
            state_id: the place, if it is reserved already.
        """
        if state_id is None:
            state_id = self.reserve()
        if state_id is None:
            return None
        checkpoint = block.checkpoint = Checkpoint(block, state_id, kind)
        self._queue.touch(checkpoint)
        self._queue.push(checkpoint)
        self._count(self._num_made, kind)
        return checkpoint

    def use(self, checkpoint: Checkpoint) -> None:
        """Notes that a request begins from it."""
        if not checkpoint.num_uses:
            self._count(self._num_used, checkpoint.kind)
        checkpoint.num_uses += 1
        self._queue.touch(checkpoint)
        self._queue.push(checkpoint)

    def drop(self, checkpoint: Checkpoint) -> None:
        """Gives its place back."""
        self._queue.discard(checkpoint)
        checkpoint.block.checkpoint = None
        self._places.give_back([checkpoint.state_id])

    def expected_uses(self, checkpoint: Checkpoint) -> float:
        """How often it is likely to be used again: as its kind is, until its own uses tell.

        Whoever has used it goes on from a deeper one, so a single use says less than none: only what is used again and
        again is a common beginning.
        """
        if checkpoint.num_uses:
            return min(MAX_EXPECTED, checkpoint.num_uses - 1) + LEAST_EXPECTED
        kind = checkpoint.kind
        return min(1.0, (self._num_used[kind] + PRIOR_USES) / (self._num_made[kind] + PRIOR_CHECKPOINTS))

    def check_integrity(self, blocks: list[CachedBlock], reserved: Iterable[int] = ()) -> None:
        """Every place is free, reserved, or belongs to one block of the index.

        Args:
            blocks: of the index.
            reserved: places for states that are on their way.

        Raises:
            IntegrityError: it does not.
        """
        kept = [block.checkpoint for block in blocks if block.checkpoint is not None]
        ids = sorted([*self._places.free_ids(), *(one.state_id for one in kept), *reserved])
        if ids != list(range(self._places.first_id, self._places.first_id + self._places.num_usable)):
            raise IntegrityError(f"The places of checkpoints are inconsistent: {ids[:16]}.")
        if any(one.block.checkpoint is not one for one in kept):
            raise IntegrityError("A checkpoint belongs to another block than it says.")

    def _evict(self) -> bool:
        """Makes one checkpoint go; False if there is none, as all places are reserved."""
        checkpoint = self._queue.pop(self._places.num_usable)
        if checkpoint is None:
            return False
        self.drop(checkpoint)
        self.num_evicted += 1
        return True

    def _value_per_byte(self, checkpoint: Checkpoint) -> float:
        return self.expected_uses(checkpoint) * checkpoint.saved_tokens / self._state_bytes

    def _count(self, counts: dict[Kind, float], kind: Kind) -> None:
        counts[kind] += 1.0
        if counts[kind] > MAX_COUNTED:
            self._num_made[kind] /= 2
            self._num_used[kind] /= 2
