"""Figures of the prefix cache."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class PrefixStats(msgspec.Struct, frozen=True):
    """Gauges at this moment, and counters since the start.

    Attributes:
        num_blocks: KV blocks that can be found.
        num_checkpoints: states that can be found.
        size_bytes: both together, over all layers of one rank.
        num_evicted_blocks: counter; blocks that had to make room.
        num_evicted_checkpoints: counter; checkpoints that had to make room for others.
        num_recomputed_tokens: counter; tokens computed again after a preemption.
        num_stored_entries: pieces on the disk that a next start can load.
        stored_bytes: what they take there, on one rank.
        num_loaded_entries: counter; pieces that came from the disk.
        num_written_entries: counter; pieces that went there.
        num_dropped_entries: counter; pieces found there that were damaged, of another model or another setting.
    """

    num_blocks: int = 0
    num_checkpoints: int = 0
    size_bytes: int = 0
    num_evicted_blocks: int = 0
    num_evicted_checkpoints: int = 0
    num_recomputed_tokens: int = 0
    num_stored_entries: int = 0
    stored_bytes: int = 0
    num_loaded_entries: int = 0
    num_written_entries: int = 0
    num_dropped_entries: int = 0


def total_prefix_stats(every: Sequence[PrefixStats]) -> PrefixStats:
    """The figures of several caches as those of one."""
    names = PrefixStats.__struct_fields__
    return PrefixStats(**{name: sum(getattr(one, name) for one in every) for name in names})
