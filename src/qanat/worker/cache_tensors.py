"""The memory behind a `CacheSpec`: every region, for all layers, allocated once at start."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from qanat.core.cache_spec import CacheRegion, CacheSpec
from qanat.core.huge_pages import map_huge_pages

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
    "int32": torch.int32,
}


@dataclass(frozen=True)
class CacheTensors:
    """One tensor per layer and region.

    Attributes:
        kv_blocks: [2, N, block_size, KV heads, head width] per full-attention layer; index 0 is K, 1 is V.
        conv_states: [S, conv_kernel - 1, conv_dim] per linear-attention layer.
        recurrent_states: [S, value heads, key_head_dim, value_head_dim] fp32 per linear-attention layer.
        held_inputs, held_gates: [S, K, conv_dim] and [S, K, 2, value heads] fp32 per linear-attention layer where
            drafts of K - 1 tokens are verified; otherwise none.
        draft_kv: like `kv_blocks`, per draft layer.
        draft_counts: [1, N, 1] int32 where there is one: so many of a block's last tokens have entries there.
        draft_rows: [S, D] where there is one and states: the row before the next token, to draft from; written where a
            state is copied or left.
        block_rows: [1, N, D] where there is one and no states: the row of each block's last token, for the same.
    """

    kv_blocks: list[Tensor]
    conv_states: list[Tensor]
    recurrent_states: list[Tensor]
    held_inputs: list[Tensor]
    held_gates: list[Tensor]
    draft_kv: list[Tensor] = dataclasses.field(default_factory=list)
    draft_counts: list[Tensor] = dataclasses.field(default_factory=list)
    draft_rows: list[Tensor] = dataclasses.field(default_factory=list)
    block_rows: list[Tensor] = dataclasses.field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """All of them together."""
        held = [*self.held_inputs, *self.held_gates]
        return sum(tensor.nbytes for tensor in [*self.shared_blocks, *self.kept_states, *held])

    @property
    def shared_blocks(self) -> list[Tensor]:
        """What a block holds for whoever finds it, [*, N, ...] each."""
        return [*self.kv_blocks, *self.draft_kv, *self.draft_counts, *self.block_rows]

    @property
    def kept_states(self) -> list[Tensor]:
        """What is copied and kept of a state, [S, ...] each; held rows are no part of it."""
        return [*self.conv_states, *self.recurrent_states, *self.draft_rows]


def allocate_cache(
    spec: CacheSpec, num_blocks: int, num_states: int, device: torch.device | str = "cpu"
) -> CacheTensors:
    """All regions, zeroed. On the CPU a page takes memory only once it is written.

    Args:
        spec: regions and their unit shapes.
        num_blocks: N, the reserved block included.
        num_states: S, the reserved state and checkpoints included; 0 without recurrent layers.
        device: where they lie.
    """
    counts = {"block": num_blocks, "state": num_states}
    by_name = {
        region.name: _layers(region, counts[region.unit], torch.device(device)) for region in spec.regions
    }
    return CacheTensors(
        kv_blocks=by_name.get("kv_blocks", []),
        conv_states=by_name.get("conv_state", []),
        recurrent_states=by_name.get("recurrent_state", []),
        held_inputs=by_name.get("held_inputs", []),
        held_gates=by_name.get("held_gates", []),
        draft_kv=by_name.get("draft_kv", []),
        draft_counts=by_name.get("draft_counts", []),
        draft_rows=by_name.get("draft_rows", []),
        block_rows=by_name.get("draft_block_rows", []),
    )


def _layers(region: CacheRegion, num_units: int, device: torch.device) -> list[Tensor]:
    """The region's tensor of each layer. Keys and values, the first axis of a block, stand before the units."""
    shape = region.unit_shape
    layout = (shape[0], num_units, *shape[1:]) if region.unit == "block" else (num_units, *shape)
    zeros = _zeros((region.num_layers, *layout), DTYPES[region.dtype], device)
    return list(zeros.unbind(0))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; on the CPU from the kernel's own zero pages, because `torch.zeros` writes every page at once."""
    size_bytes = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or not size_bytes:
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.frombuffer(map_huge_pages(size_bytes), dtype=dtype).view(shape)
