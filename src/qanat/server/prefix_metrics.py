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
    (
        f"{OWN_PREFIX}prefix_cache_disk_entries",
        "Pieces on disk that a next start can load.",
        lambda one: one.prefixes.num_stored_entries,
    ),
    (
        f"{OWN_PREFIX}prefix_cache_disk_bytes",
        "What they take there, on one rank.",
        lambda one: one.prefixes.stored_bytes,
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
    (
        f"{OWN_PREFIX}prefix_cache_disk_loaded",
        "Pieces that came from the disk at the start.",
        lambda one: one.prefixes.num_loaded_entries,
    ),
    (
        f"{OWN_PREFIX}prefix_cache_disk_written",
        "Pieces that went to the disk.",
        lambda one: one.prefixes.num_written_entries,
    ),
    (
        f"{OWN_PREFIX}prefix_cache_disk_dropped",
        "Pieces on disk that were damaged, or of another model or setting.",
        lambda one: one.prefixes.num_dropped_entries,
    ),
)
"""Name, meaning and source."""
