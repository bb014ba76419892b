"""What does not fit, in words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from qanat.deploy.sizing.cache_layout import cache_of
from qanat.deploy.sizing.layout import Layout
from qanat.deploy.sizing.memory import Memory

GB = 1e9


class ShortageKind(str, Enum):
    """What there is too little of, the worst first."""

    NO_POOL = "no-pool"
    """The budget is spent before the first block: the start fails with no memory for cache blocks."""
    CONTEXT = "context"
    """One sequence of --max-model-len does not fit: the start fails."""
    BLOCKS = "blocks"
    """A hybrid model with graphs has fewer blocks than --max-num-seqs: refused from 0.20.2, fewer graphs before."""
    SEQUENCES = "sequences"
    """The service starts, but --max-num-seqs sequences are never resident at once: the rest waits."""
    HEAD_ROOM = "head-room"
    """What is taken after the budget may not fit: out of memory while graphs are captured, or under load."""


@dataclass(frozen=True)
class Shortage:
    """One thing that does not fit, and a sentence that says what to change."""

    kind: ShortageKind
    message: str

    @property
    def stops_start(self) -> bool:
        """Whether the engine refuses to start, not only makes requests wait or runs a risk."""
        return self.kind in (ShortageKind.NO_POOL, ShortageKind.CONTEXT, ShortageKind.BLOCKS)


def shortages(layout: Layout, memory: Memory) -> tuple[Shortage, ...]:
    """What does not fit, the worst first; empty if everything does.

    Args:
        layout: what `memory` was computed for.
        memory: of `memory_of`.
    """
    found = [*_pool_shortages(layout, memory)]
    if memory.head_room_bytes < 0:
        found.append(Shortage(ShortageKind.HEAD_ROOM, _head_room_message(layout, memory)))
    return tuple(found)


def starts(layout: Layout, memory: Memory) -> bool:
    """Whether the engine starts, as far as memory goes; requests may have to wait for each other."""
    return not any(shortage.stops_start for shortage in shortages(layout, memory))


def fits(layout: Layout, memory: Memory) -> bool:
    """Whether it starts and holds one sequence of the longest context while --max-num-seqs - 1 others begin."""
    return all(shortage.kind is ShortageKind.HEAD_ROOM for shortage in shortages(layout, memory))


def _pool_shortages(layout: Layout, memory: Memory) -> list[Shortage]:
    if memory.num_blocks < 1:
        taken = memory.budget_bytes - memory.pool_bytes
        message = (
            f"Weights and buffers take {taken / GB:.1f} GB of the {memory.budget_bytes / GB:.1f} GB that "
            f"--gpu-memory-utilization {layout.gpu_memory_utilization:g} allows. Use more NPUs, weights with fewer "
            "bits, or a smaller --max-num-batched-tokens."
        )
        return [Shortage(ShortageKind.NO_POOL, message)]
    if memory.longest_context < layout.max_model_len:
        message = (
            f"The cache holds {memory.longest_context} tokens of one sequence, --max-model-len is "
            f"{layout.max_model_len}. Lower it to {memory.longest_context}, or use more NPUs."
        )
        return [Shortage(ShortageKind.CONTEXT, message)]
    found = []
    if layout.model.is_hybrid and layout.capture_sizes and layout.max_num_seqs > memory.num_blocks:
        message = (
            f"The cache has {memory.num_blocks} blocks, --max-num-seqs is {layout.max_num_seqs}. The engine takes "
            f"no more than {memory.num_blocks}, of which {most_resident(layout, memory)} can run at once."
        )
        found.append(Shortage(ShortageKind.BLOCKS, message))
    if memory.pool_bytes < memory.needed_pool_bytes:
        message = (
            f"{layout.max_num_seqs} sequences, one of {layout.max_model_len} tokens, take at least "
            f"{memory.needed_pool_bytes / GB:.1f} GB of cache, there are {memory.pool_bytes / GB:.1f} GB. "
            f"Lower --max-num-seqs to {most_resident(layout, memory)}."
        )
        found.append(Shortage(ShortageKind.SEQUENCES, message))
    return found


def most_resident(layout: Layout, memory: Memory) -> int:
    """Sequences that the pool holds at once where one has --max-model-len tokens and the others have just begun."""
    cache = cache_of(layout)
    left = memory.num_blocks - 1 - cache.blocks_for(layout.max_model_len)
    return 1 + left // cache.blocks_for(1) if left >= 0 else 0


def _head_room_message(layout: Layout, memory: Memory) -> str:
    outside = sum(item.size_bytes for item in memory.items if not item.is_in_budget)
    share = (memory.total_bytes - outside) / memory.total_bytes
    return (
        f"Graphs, fragments and uneven experts may take {outside / GB:.1f} GB, --gpu-memory-utilization "
        f"{layout.gpu_memory_utilization:g} leaves {(memory.total_bytes - memory.budget_bytes) / GB:.1f} GB. "
        f"Lower it to {share:.2f}, or lower --max-num-batched-tokens."
    )
