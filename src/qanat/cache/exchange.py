"""What of the prefix cache goes to a disk next, and how what comes back from there enters the index."""

from __future__ import annotations

from collections.abc import Collection, Container

import msgspec

from qanat.cache.id_pool import IdPool
from qanat.cache.index import CachedBlock
from qanat.cache.placement import Kind
from qanat.cache.prefix_cache import PrefixCache
from qanat.core.cache_spec import CacheSpec
from qanat.core.prefix_entry import NO_STATE, PrefixEntry

MAX_ENTRY_BYTES = 32 * 2**20
"""Of the blocks of one entry: it is copied between two steps, and read as a whole."""


class PrefixExchange:
    """Picks entries out of the index, and puts entries into it.

    Args:
        spec: the model's cache regions.
        prefixes: the index and its checkpoints.
        pool: of the blocks.
    """

    def __init__(self, spec: CacheSpec, prefixes: PrefixCache, pool: IdPool) -> None:
        self._spec, self._prefixes, self._pool = spec, prefixes, pool
        self._max_blocks = max(1, MAX_ENTRY_BYTES // spec.block_bytes)

    def entry_bytes(self, entry: PrefixEntry) -> int:
        """What its content takes on one rank."""
        return len(entry.keys) * self._spec.block_bytes + entry.has_state * self._spec.state_bytes

    def contains(self, entry: PrefixEntry) -> bool:
        """True if it can be found in memory."""
        block = self._prefixes.index.get(bytes.fromhex(entry.tail))
        return block is not None and (not entry.has_state or block.checkpoint is not None)

    def value(self, entry: PrefixEntry) -> float:
        """What an entry is worth now; 0 if it is not in memory."""
        block = self._prefixes.index.get(bytes.fromhex(entry.tail))
        return 0.0 if block is None else self._prefixes.value_per_byte(block)

    def next_entry(
        self, blocks: Container[str], states: Container[str], skipped: Collection[str] = ()
    ) -> tuple[PrefixEntry, str] | None:
        """The next piece to write of what is worth most and not on the disk yet; None if everything is.

        With it the key of the block that it leads to.

        Nobody must own anything that is not final: to be called between steps.

        Args:
            blocks: keys of blocks that are on the disk.
            states: keys of blocks behind which the state is on the disk.
            skipped: keys of blocks that are not to be aimed at.
        """
        has_states = self._spec.has_states
        pending = {copy.target for copy in self._prefixes.copies}

        def state_of(block: CachedBlock) -> int:
            checkpoint = block.checkpoint
            is_there = checkpoint is not None and checkpoint.state_id not in pending
            return checkpoint.state_id if checkpoint is not None and is_there else 0

        best: CachedBlock | None = None
        best_value = -1.0
        for block in self._prefixes.index.blocks():
            key = block.key.hex()
            is_missing = (
                (state_of(block) and key not in states)
                if has_states
                else (not block.num_children and key not in blocks)
            )
            if is_missing and key not in skipped:
                value = self._prefixes.value_per_byte(block)
                if value > best_value:
                    best, best_value = block, value
        if best is None:
            return None
        path = self._missing_path(best, blocks)
        for number, block in enumerate(path):
            if state_of(block) or number + 1 == self._max_blocks:
                path = path[: number + 1]
                break
        tail = path[-1] if path else best
        before = path[0].parent if path else best
        state_id = state_of(tail)
        entry = PrefixEntry(
            base=before.key.hex() if before is not None else "",
            keys=[block.key.hex() for block in path],
            end=tail.end,
            kind=int(tail.checkpoint.kind) if state_id and tail.checkpoint is not None else NO_STATE,
            value=best_value,
            block_ids=[block.block_id for block in path],
            state_id=state_id,
        )
        return entry, best.key.hex()

    def place(self, entry: PrefixEntry) -> PrefixEntry | None:
        """Free places for an entry from the disk; None if there are none, or what it begins from is not there."""
        if entry.base and bytes.fromhex(entry.base) not in self._prefixes.index:
            return None
        checkpoints = self._prefixes.checkpoints
        if len(entry.keys) > self._pool.num_free or (entry.has_state and not checkpoints.num_free):
            return None
        state_id = (checkpoints.reserve() or 0) if entry.has_state else 0
        return msgspec.structs.replace(entry, block_ids=self._pool.take(len(entry.keys)), state_id=state_id)

    def give_back(self, entry: PrefixEntry) -> None:
        """Frees the places of an entry that did not come."""
        self._pool.give_back(entry.block_ids)
        if entry.state_id:
            self._prefixes.checkpoints.give_back(entry.state_id)

    def adopt(self, entry: PrefixEntry) -> None:
        """Makes an entry findable whose places hold its content now."""
        prefixes, num_blocks = self._prefixes, len(entry.keys)
        block = prefixes.index.get(bytes.fromhex(entry.base)) if entry.base else None
        for number, (key, block_id) in enumerate(zip(entry.keys, entry.block_ids, strict=True)):
            known = prefixes.index.get(bytes.fromhex(key))
            if known is not None:  # two processes have written overlapping pieces
                self._pool.give_back([block_id])
                block = known
                continue
            end = entry.end - (num_blocks - 1 - number) * self._spec.block_size
            block = prefixes.adopt(bytes.fromhex(key), block, block_id, end)
        if block is None or not entry.state_id:
            return
        if block.checkpoint is not None:
            prefixes.checkpoints.give_back(entry.state_id)
            return
        prefixes.checkpoints.make(block, Kind(entry.kind), entry.state_id)
        prefixes.rank_anew(block)

    def _missing_path(self, block: CachedBlock, blocks: Container[str]) -> list[CachedBlock]:
        """The blocks up to this one, the first of those that are not on the disk first."""
        path: list[CachedBlock] = []
        at: CachedBlock | None = block
        while at is not None and at.key.hex() not in blocks:
            path.append(at)
            at = at.parent
        path.reverse()
        return path
