"""A piece of what is cached for later prompts, as it goes to the disk and comes back: names and places, no tensors."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

NO_STATE = -1
"""Kind of a piece without a state."""


class PrefixEntry(msgspec.Struct, frozen=True):
    """Some blocks, one after the other, and maybe the recurrent state behind the last of them.

    Attributes:
        base: key of the block before them, in hexadecimal digits; empty at the beginning of a sequence. Without blocks,
            that of the block behind which the state is.
        keys: of the blocks.
        end: position after the last token.
        kind: why the state is kept (`qanat.cache.placement.Kind`); NO_STATE if there is none.
        value: what it is worth to load it, for an order among entries; the larger the better.
        block_ids: where the blocks lie, or are to lie.
        state_id: where the state does; 0 for none.
    """

    base: str
    keys: list[str]
    end: int
    kind: int = NO_STATE
    value: float = 0.0
    block_ids: list[int] = []
    state_id: int = 0

    @property
    def tail(self) -> str:
        """Key of the last block."""
        return self.keys[-1] if self.keys else self.base

    @property
    def has_state(self) -> bool:
        """True if the state behind the last block is part of it."""
        return self.kind != NO_STATE

    @property
    def name(self) -> str:
        """Tells it from all others of the same model: it is made of keys, so its content is known by it."""
        return f"{self.tail}-{'s' if self.has_state else 'b'}{len(self.keys)}"


class PrefixOrder(msgspec.Struct, frozen=True):
    """To every rank: what to do with its share of an entry.

    Attributes:
        act: "save", "load", "drop" or "finish", which waits until what is being written is on the disk.
        entry: the entry; nothing for "finish".
    """

    act: str
    entry: PrefixEntry | None = None


@dataclass(frozen=True)
class PrefixIdentity:
    """What the bits of an entry depend on besides the tokens. Entries of another identity are refused.

    Attributes:
        parts: each by the name by which messages speak of it.
    """

    parts: dict[str, str]

    def difference(self, other: dict[str, str]) -> str:
        """What another one has otherwise, in words."""
        differing = [name for name in {**self.parts, **other} if self.parts.get(name) != other.get(name)]
        return ", ".join(differing)
