"""Texts as batches for one pass through each layer, with caches that the layers share, as each is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qanat.cache.spec import cache_spec
from qanat.layers.context import ForwardContext
from qanat.models.decoder import CausalLM
from qanat.worker.cache_tensors import allocate_cache

BATCH_TOKENS = 2048
"""Tokens of a batch, unless one text alone has more."""
_BLOCK_SIZE = 64


@dataclass
class TextBatch:
    """Some texts on their way through the layers.

    Attributes:
        token_ids: [T] int64.
        context: where each token stands.
        x, residual: [T, C], what the next layer gets; None before the first.
    """

    token_ids: Tensor
    context: ForwardContext
    x: Tensor | None = None
    residual: Tensor | None = None


def batches_of(sequences: Sequence[Sequence[int]], model: CausalLM) -> list[TextBatch]:
    """The texts in batches, in order."""
    groups: list[list[Sequence[int]]] = [[]]
    for sequence in sequences:
        if groups[-1] and sum(map(len, groups[-1])) + len(sequence) > BATCH_TOKENS:
            groups.append([])
        groups[-1].append(sequence)
    return [_batch(group, model) for group in groups if group]


def _batch(sequences: Sequence[Sequence[int]], model: CausalLM) -> TextBatch:
    lens = [len(sequence) for sequence in sequences]
    blocks = [-(-length // _BLOCK_SIZE) for length in lens]
    tables = torch.zeros(len(lens), max(blocks), dtype=torch.int32)
    slots, next_block = [], 1  # block 0 and state 0 are for padding rows, as everywhere
    for row, (length, num_blocks) in enumerate(zip(lens, blocks, strict=True)):
        tables[row, :num_blocks] = torch.arange(next_block, next_block + num_blocks)
        slots.append(torch.arange(length) + next_block * _BLOCK_SIZE)
        next_block += num_blocks
    positions = torch.cat([torch.arange(length) for length in lens])[None]
    cos, sin = model.rotary_rows(positions)
    config = model.config
    spec = cache_spec(config, block_size=_BLOCK_SIZE, kv_dtype=str(model.rotary.dtype).removeprefix("torch."))
    cache = allocate_cache(spec, next_block, len(lens) + 1)
    zeros = torch.zeros(len(lens), dtype=torch.int32)
    context = ForwardContext(
        query_start_loc=torch.tensor([0, *lens]).cumsum(0).int(),
        seq_lens=torch.tensor(lens, dtype=torch.int32),
        num_computed=zeros,
        block_tables=tables,
        slot_mapping=torch.cat(slots),
        state_ids=torch.arange(1, len(lens) + 1, dtype=torch.int32),
        positions=positions,
        cos=cos,
        sin=sin,
        kv_cache=cache.kv_blocks[:1] * len(cache.kv_blocks),
        conv_states=cache.conv_states[:1] * len(cache.conv_states),
        recurrent_states=cache.recurrent_states[:1] * len(cache.recurrent_states),
        block_size=_BLOCK_SIZE,
        host_query_lens=lens,
        host_seq_lens=lens,
    )
    token_ids = torch.tensor([token for sequence in sequences for token in sequence])
    return TextBatch(token_ids, context)
