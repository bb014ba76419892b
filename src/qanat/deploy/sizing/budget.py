"""The memory of one NPU: what is taken, what is left for the cache, and what fits into it.

The engine asks for `total x --gpu-memory-utilization`. Weights, activations of its profile run and communicators go
off; the rest is the pool of cache blocks. Graphs, fragments and experts that get more than their share come on top,
out of what the budget leaves.
"""

from __future__ import annotations

import math

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.sizing.activations import activation_bytes, expert_bytes
from qanat.deploy.sizing.cache_layout import CacheLayout, cache_of
from qanat.deploy.sizing.communicators import MIB, communicator_buffers, communicator_bytes
from qanat.deploy.sizing.graphs import graph_bytes
from qanat.deploy.sizing.layout import Layout
from qanat.deploy.sizing.memory import Memory, MemoryItem
from qanat.deploy.sizing.weights import weight_bytes_of, weight_format

__all__ = ["Layout", "memory_of", "visible_bytes"]

_MASK_ELEMENT_BYTES = 2


def visible_bytes(chip: Chip, memory_gib: float | None = None) -> int:
    """What an engine sees of one NPU, which is less than its nominal size.

    Args:
        chip: the accelerator.
        memory_gib: nominal size where the chip comes in several; None for the usual one.

    Raises:
        ConfigError: the chip does not come in that size.
    """
    nominal = int(memory_gib or chip.memory_gib)
    if nominal not in chip.visible_bytes:
        sizes = " or ".join(str(size) for size in sorted(chip.visible_bytes))
        raise ConfigError(f"{chip.name} has {sizes} GiB per NPU, not {memory_gib:g}.")
    return chip.visible_bytes[nominal]


def memory_of(layout: Layout, knowledge: Knowledge | None = None) -> Memory:
    """The memory of the NPU that holds most, and what fits into it.

    Nothing is refused: what does not fit shows as numbers, see `verdict.shortages`.

    Raises:
        ConfigError: the format of the weights is not known.
    """
    known = knowledge or load_knowledge()
    cache = cache_of(layout)
    budget = math.floor(layout.npu_bytes * layout.gpu_memory_utilization)
    items = (*_inside(layout, known), *_outside(layout, known))
    pool = budget - sum(item.size_bytes for item in items if item.is_in_budget)
    outside = sum(item.size_bytes for item in items if not item.is_in_budget)
    num_blocks = max(0, pool) // cache.pool_block_bytes
    usable = max(0, num_blocks - 1)
    window = max(layout.model.max_position, layout.max_model_len)
    return Memory(
        total_bytes=layout.npu_bytes,
        budget_bytes=budget,
        items=items,
        pool_bytes=pool,
        needed_pool_bytes=_needed_bytes(layout, cache),
        head_room_bytes=layout.npu_bytes - budget - outside,
        block_tokens=cache.block_tokens,
        num_blocks=num_blocks,
        longest_context=min(window, cache.tokens_in(usable)),
        most_sequences=usable // cache.blocks_for(layout.max_model_len),
    )


def _needed_bytes(layout: Layout, cache: CacheLayout) -> int:
    """One sequence of the longest context, the others just begun, and the block that the engine keeps empty."""
    others = max(0, layout.max_num_seqs - 1) * cache.blocks_for(1)
    return (1 + cache.blocks_for(layout.max_model_len) + others) * cache.pool_block_bytes


def _inside(layout: Layout, known: Knowledge) -> tuple[MemoryItem, ...]:
    buffers = communicator_buffers(layout, known)
    groups = " + ".join(f"{name} {size}" for name, size in buffers.items()) or "none"
    runtime = math.ceil(known.estimate("runtime_mib") * MIB)
    return (
        MemoryItem(
            name="weights",
            size_bytes=weight_bytes_of(layout),
            how=_weights_in_words(layout, known),
            confidence=weight_format(layout.variant, known).confidence,
            is_in_budget=True,
        ),
        MemoryItem(
            name="activations",
            size_bytes=activation_bytes(layout, known),
            how=f"estimate for a step of {layout.max_num_batched_tokens} tokens"
            + (" and the largest image" if layout.has_vision else ""),
            confidence="unverified",
            is_in_budget=True,
        ),
        MemoryItem(
            name="communication",
            size_bytes=communicator_bytes(layout, known),
            how=f"two buffers per communicator, MiB: {groups}",
            confidence="computed",
            is_in_budget=True,
        ),
        MemoryItem(
            name="runtime",
            size_bytes=runtime,
            how="estimate of what the driver takes",
            confidence="unverified",
            is_in_budget=True,
        ),
    )


def _outside(layout: Layout, known: Knowledge) -> tuple[MemoryItem, ...]:
    percent = known.estimate("fragments_percent")
    percent += known.estimate("moe_fragments_percent") if layout.model.is_moe else 0
    spare = math.ceil(layout.npu_bytes * percent / 100)
    imbalance = known.estimate("expert_imbalance") if layout.expert_parallel and layout.ep > 1 else 0
    uneven = math.ceil(expert_bytes(layout) * imbalance)
    num_graphs = len(layout.capture_sizes)
    return (
        *_mask(layout),
        MemoryItem(
            name="graphs",
            size_bytes=graph_bytes(layout, known),
            how=f"estimate for {num_graphs} captured sizes",
            confidence="unverified",
            is_in_budget=False,
        ),
        MemoryItem(
            name="fragments",
            size_bytes=spare,
            how=f"estimate: {percent:g} % of the NPU",
            confidence="unverified",
            is_in_budget=False,
        ),
        MemoryItem(
            name="uneven experts",
            size_bytes=uneven,
            how="estimate: an NPU's experts may get twice their share of the tokens"
            if uneven
            else "no experts",
            confidence="unverified",
            is_in_budget=False,
        ),
    )


def _mask(layout: Layout) -> tuple[MemoryItem, ...]:
    """The mask and its copy in the layout of the matrix unit; it is made when the first prompt is read."""
    if not layout.has_full_mask:
        return ()
    length = layout.max_model_len
    return (
        MemoryItem(
            name="attention mask",
            size_bytes=2 * _MASK_ELEMENT_BYTES * length**2,
            how=f"two copies of {length} x {length} in float16; a newer torch_npu may do with a small one",
            confidence="documentation",
            is_in_budget=False,
        ),
    )


def _weights_in_words(layout: Layout, known: Knowledge) -> str:
    kind = weight_format(layout.variant, known)
    parts = [f"{kind.name}: all but experts over TP {layout.tp}"]
    if layout.model.is_moe:
        parts.append(
            f"{layout.model.num_experts + layout.num_redundant_experts} experts over {layout.ep} NPUs"
        )
    if layout.drafter:
        parts.append(f"with the {layout.drafter} drafter")
    if layout.has_vision:
        parts.append("with the vision tower")
    return ", ".join(parts)
