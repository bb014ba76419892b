"""Figures of the prefix cache for /metrics, beside vLLM's two counters of tokens looked up and found."""

from __future__ import annotations

from collections.abc import Callable

from qanat.engine.metrics import EngineStats

OWN_PREFIX = "qanat:"
"""Of figures for which vLLM has no name."""

Reader = Callable[[EngineStats], float]

PREFIX_GAUGES: tuple[tuple[str, str, Reader], ...] = (
    (f"{OWN_PREFIX}prefix_cache_blocks", "KV blocks that can be found.", lambda one: one.prefixes.num_blocks),
    (
        f"{OWN_PREFIX}prefix_cache_checkpoints",
        "Recurrent states that requests can begin from.",
        lambda one: one.prefixes.num_checkpoints,
    ),
    (
        f"{OWN_PREFIX}prefix_cache_bytes",
        "Memory of both, on one rank.",
        lambda one: one.prefixes.size_bytes,
    ),
)
"""Name, meaning and source."""

PREFIX_COUNTERS: tuple[tuple[str, str, Reader], ...] = (
    (
        f"{OWN_PREFIX}prefix_cache_evicted_blocks",
        "Cached KV blocks that made room.",
        lambda one: one.prefixes.num_evicted_blocks,
    ),
    (
        f"{OWN_PREFIX}prefix_cache_evicted_checkpoints",
        "Kept states that made room for others.",
        lambda one: one.prefixes.num_evicted_checkpoints,
    ),
    (
        f"{OWN_PREFIX}recomputed_tokens",
        "Tokens computed again after a preemption.",
        lambda one: one.prefixes.num_recomputed_tokens,
    ),
)
"""Name, meaning and source."""
