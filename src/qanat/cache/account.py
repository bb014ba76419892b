"""What one running request has of the cache, and what is cached of its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qanat.cache.checkpoints import Checkpoint
from qanat.cache.index import CachedBlock
from qanat.cache.keys import KeyChain
from qanat.cache.placement import Kind, Stop
from qanat.core.prefix_report import OFF, PrefixReport
from qanat.core.request import Request


@dataclass(frozen=True)
class Awaited:
    """A running request that computes what another one has in common with it.

    Attributes:
        request_id: who computes it.
        num_tokens: once so many leading tokens are there, waiting has been worth it.
    """

    request_id: str
    num_tokens: int


@dataclass(frozen=True)
class PrefixHit:
    """What of a request's tokens the cache already holds.

    Attributes:
        num_tokens: leading tokens that need not be computed; always fewer than the request has (C6).
        blocks: that hold them.
        stops: where its state is to be kept.
        chain: its keys; None if nothing is indexed.
        awaited: set if more of them will be there soon.
        report: for people.
    """

    num_tokens: int = 0
    blocks: Sequence[CachedBlock] = ()
    stops: Sequence[Stop] = ()
    chain: KeyChain | None = None
    awaited: Awaited | None = None
    report: PrefixReport = PrefixReport(0, 0, 0, OFF)

    @property
    def num_shared_blocks(self) -> int:
        """Of the blocks, those that other running requests hold too, so that holding them takes nothing."""
        return sum(block.num_holders > 0 for block in self.blocks)


@dataclass
class Account:
    """What a running request owns and holds.

    Attributes:
        request: whose it is.
        block_ids: its block table.
        state_id: its running state; 0 without recurrent layers.
        chain: its keys; None if nothing is indexed.
        cached: the index's blocks of its leading full blocks. Where one has another id than the table, two requests
            have computed the same at the same time, and this one's copy is its own.
        stops: where its prompt's state is to be kept, by position.
        reserved: places for states that a step leaves on its way, by position, until their block is in the index.
        newest: the checkpoint in its output; an older one there is worth little.
        is_trusted: False once its results were bad; nothing more of it enters the index then.
    """

    request: Request
    block_ids: list[int]
    state_id: int
    chain: KeyChain | None = None
    cached: list[CachedBlock] = field(default_factory=list)
    stops: dict[int, Kind] = field(default_factory=dict)
    reserved: dict[int, int] = field(default_factory=dict)
    newest: Checkpoint | None = None
    is_trusted: bool = True

    @property
    def own_block_ids(self) -> list[int]:
        """Blocks that nobody else can have; the last ones first."""
        own = self.block_ids[len(self.cached) :]
        doubled = [
            block_id
            for block_id, block in zip(self.block_ids, self.cached, strict=False)
            if block.block_id != block_id
        ]
        return [*reversed(own), *doubled]
