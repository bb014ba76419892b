"""The shape of everything the cache holds, as named regions: the same names size, plan, shard and transfer it."""

from __future__ import annotations

import math
from dataclasses import dataclass

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "int32": 4}

SCALE_BYTES = 4
"""Of the fp32 scale that stands behind the values of each head of an int8 cache."""


def head_width(head_dim: int, dtype: str) -> int:
    """Elements that a head takes in a KV cache of this type."""
    return head_dim + SCALE_BYTES if dtype == "int8" else head_dim


@dataclass(frozen=True)
class CacheRegion:
    """One array of the cache, repeated per layer.

    Attributes:
        name: "kv_blocks", "draft_kv", "draft_counts", "conv_state", "recurrent_state", "held_inputs", "held_gates",
            "draft_rows" or "draft_block_rows".
        unit: "block" (counted by num_blocks) or "state" (counted by num_states).
        num_layers: layers that have it.
        unit_shape: shape of one unit of one layer.
        dtype: storage type's name.
        shard_axis: axis of `unit_shape` that tensor parallelism splits; None if every rank holds all of it.
    """

    name: str
    unit: str
    num_layers: int
    unit_shape: tuple[int, ...]
    dtype: str
    shard_axis: int | None

    @property
    def bytes_per_unit(self) -> int:
        """Bytes of one block or one state over all layers."""
        return self.num_layers * math.prod(self.unit_shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class CacheSpec:
    """All regions of one model's cache.

    Blocks and states never share a page size. Block 0 and state 0 are reserved for padding rows and never read
    back, so `num_blocks` and `num_states` count one more than can be owned.
    """

    block_size: int
    regions: tuple[CacheRegion, ...]

    def region(self, name: str) -> CacheRegion:
        """The region of this name.

        Raises:
            KeyError: if the model has none.
        """
        for region in self.regions:
            if region.name == name:
                return region
        raise KeyError(name)

    @property
    def block_bytes(self) -> int:
        """Bytes of one KV block over all attention layers."""
        return sum(region.bytes_per_unit for region in self.regions if region.unit == "block")

    @property
    def state_bytes(self) -> int:
        """Bytes of one sequence's recurrent and conv state over all layers; 0 without such layers."""
        return sum(region.bytes_per_unit for region in self.regions if region.unit == "state")

    @property
    def has_states(self) -> bool:
        """True if the model has recurrent layers."""
        return self.state_bytes > 0

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-num_tokens // self.block_size)
