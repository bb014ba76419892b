"""The index over full blocks: a tree by chained keys. A block can be found exactly as long as all before it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qanat.core.errors import IntegrityError

if TYPE_CHECKING:
    from qanat.cache.checkpoints import Checkpoint


class CachedBlock:
    """A full block whose content is known by its key and never changes.

    Attributes:
        key: see `qanat.cache.keys`.
        parent: the block before it; None for a sequence's first.
        block_id: where its keys and values lie.
        end: position after its last token.
        num_holders: running requests whose sequence contains it; each also holds all blocks before it.
        num_children: blocks in the index that follow it directly.
        num_uses: hits that contained it.
        checkpoint: the recurrent state at `end`, if it is kept.
        base: the age of the queue when it was last used.
        version: counts changes of its rank in the queue of blocks.
    """

    __slots__ = (
        "base",
        "block_id",
        "checkpoint",
        "end",
        "key",
        "num_children",
        "num_holders",
        "num_uses",
        "parent",
        "version",
    )

    def __init__(self, key: bytes, parent: CachedBlock | None, block_id: int, end: int) -> None:
        self.key = key
        self.parent = parent
        self.block_id = block_id
        self.end = end
        self.num_holders = 0
        self.num_children = 0
        self.num_uses = 0
        self.checkpoint: Checkpoint | None = None
        self.base = 0.0
        self.version = 0

    @property
    def is_candidate(self) -> bool:
        """True if it can go: nobody holds it and nothing that can be found depends on it."""
        return not self.num_holders and not self.num_children


class PrefixIndex:
    """All blocks that can be found, and how many of them nobody holds.

    Attributes:
        num_unheld: blocks with no holder. All of them can go, the last of each sequence first: who holds a block
            holds all before it.
    """

    def __init__(self) -> None:
        self._blocks: dict[bytes, CachedBlock] = {}
        self.num_unheld = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, key: bytes) -> bool:
        return key in self._blocks

    def get(self, key: bytes) -> CachedBlock | None:
        """The block with this key."""
        return self._blocks.get(key)

    def blocks(self) -> list[CachedBlock]:
        """All blocks, a parent before its children."""
        return sorted(self._blocks.values(), key=lambda block: block.end)

    def insert(self, key: bytes, parent: CachedBlock | None, block_id: int, end: int) -> CachedBlock:
        """Adds a block that is not there yet; nobody holds it."""
        block = self._blocks[key] = CachedBlock(key, parent, block_id, end)
        if parent is not None:
            parent.num_children += 1
        self.num_unheld += 1
        return block

    def hold(self, block: CachedBlock) -> None:
        """One more request contains it."""
        self.num_unheld -= not block.num_holders
        block.num_holders += 1

    def let_go(self, block: CachedBlock) -> None:
        """One request fewer contains it."""
        block.num_holders -= 1
        self.num_unheld += not block.num_holders

    def remove(self, block: CachedBlock) -> None:
        """Makes a candidate unfindable."""
        del self._blocks[block.key]
        self.num_unheld -= 1
        if block.parent is not None:
            block.parent.num_children -= 1

    def check_integrity(self) -> None:
        """Counts children and unheld blocks, and looks for blocks whose parent cannot be found.

        Raises:
            IntegrityError: naming what is wrong.
        """
        num_children: dict[bytes, int] = {}
        for block in self._blocks.values():
            parent = block.parent
            if parent is None:
                continue
            num_children[parent.key] = num_children.get(parent.key, 0) + 1
            if self._blocks.get(parent.key) is not parent:
                raise IntegrityError(f"Block {block.block_id} is in the index, the one before it is not.")
            if parent.num_holders < block.num_holders:
                raise IntegrityError(f"Block {block.block_id} has more holders than the one before it.")
        for block in self._blocks.values():
            if block.num_children != num_children.get(block.key, 0):
                raise IntegrityError(f"Block {block.block_id} miscounts the blocks that follow it.")
        if self.num_unheld != sum(not block.num_holders for block in self._blocks.values()):
            raise IntegrityError("The index miscounts the blocks that nobody holds.")
