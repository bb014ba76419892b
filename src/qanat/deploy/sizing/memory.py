"""What the memory of one NPU goes to, as data that a plan holds and a report prints."""

from __future__ import annotations

import msgspec

from qanat.deploy.knowledge.entry import Confidence

GIB = 2**30


def gib(size_bytes: int) -> str:
    """A size in words, such as "61.2 GiB"."""
    return f"{size_bytes / GIB:.1f} GiB"


class MemoryItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bytes of one NPU that one thing takes.

    Attributes:
        name: weights, cache, state, activations, communication, graphs, ...
        size_bytes: for the NPU that takes most.
        how: the formula with its numbers filled in.
        confidence: computed, unverified, ...
        is_in_budget: whether --gpu-memory-utilization covers it.
    """

    name: str
    size_bytes: int
    how: str
    confidence: Confidence
    is_in_budget: bool


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The memory of one NPU of a role.

    Attributes:
        total_bytes: what the driver shows, less than the nominal size.
        budget_bytes: total times --gpu-memory-utilization.
        items: everything that is taken; the cache pool is what is left of the budget.
        pool_bytes: budget without the items in it: keys, values and recurrent states live there.
        needed_pool_bytes: what one sequence of --max-model-len takes of the pool while the others of --max-num-seqs
            have just begun; with less, requests wait for each other.
        head_room_bytes: total without the budget and the items outside of it; negative means out of memory.
        block_tokens: tokens of one cache block.
        num_blocks: blocks in the pool.
        longest_context: tokens of the longest request that fits alone, at most the model's window.
        most_sequences: sequences of --max-model-len tokens that fit at once.
    """

    total_bytes: int
    budget_bytes: int
    items: tuple[MemoryItem, ...]
    pool_bytes: int
    needed_pool_bytes: int
    head_room_bytes: int
    block_tokens: int
    num_blocks: int
    longest_context: int
    most_sequences: int
