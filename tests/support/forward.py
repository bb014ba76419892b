"""Runs a model on ragged batches without the engine: caches, block tables and contexts for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from qanat.config.sharding import rank_model
from qanat.layers.context import ForwardContext, HeldContext
from qanat.models.decoder import CausalLM


@dataclass
class Running:
    """One request: its place in the caches and how many tokens have been computed."""

    blocks: list[int]
    state_id: int
    num_computed: int = 0


class Draft(NamedTuple):
    """A request's rows in a step that may verify some.

    Attributes:
        name: of the request.
        tokens: of its rows.
        num_accepted_before: of the rows that it held last.
        num_accepted: how many of these rows turn out right; None if they are no drafts and not held.
    """

    name: str
    tokens: Sequence[int]
    num_accepted_before: int = 0
    num_accepted: int | None = None


class ForwardRunner:
    """Owns caches for a few requests. Block 0 and state 0 are left to padding, as in the engine.

    Caches start as NaN, so that reading what was never written shows.
    """

    def __init__(
        self,
        model: CausalLM,
        block_size: int = 16,
        num_blocks: int = 128,
        num_states: int = 32,
        num_ranks: int = 1,
        max_held: int = 1,
    ) -> None:
        """Allocates the caches in the model's type, for one of so many ranks; `max_held` rows can be verified."""
        config, dtype = rank_model(model.config, num_ranks), model.rotary.dtype
        self.model, self.block_size = model, block_size
        shape = (2, num_blocks, block_size, config.num_key_value_heads, config.head_dim)
        self.kv_cache = [
            torch.full(shape, torch.nan, dtype=dtype) for _ in range(config.num_full_attention_layers)
        ]
        self.conv_states: list[Tensor] = []
        self.recurrent_states: list[Tensor] = []
        self.held: tuple[list[Tensor], list[Tensor]] = [], []
        if config.gdn is not None:
            gdn = config.gdn
            conv = (num_states, gdn.conv_kernel_dim - 1, gdn.conv_dim)
            state = (num_states, gdn.num_value_heads, gdn.key_head_dim, gdn.value_head_dim)
            for _ in range(config.num_linear_attention_layers):
                self.conv_states.append(torch.full(conv, torch.nan, dtype=dtype))
                self.recurrent_states.append(torch.full(state, torch.nan))
                self.held[0].append(torch.full((num_states, max_held, gdn.conv_dim), torch.nan, dtype=dtype))
                self.held[1].append(torch.full((num_states, max_held, 2, gdn.num_value_heads), torch.nan))
        self.free_blocks = list(range(1, num_blocks))[::-1]
        self.free_states = list(range(1, num_states))[::-1]
        self.running: dict[str, Running] = {}

    def release(self, name: str) -> None:
        """Gives a request's places back; their contents stay as they are, to be overwritten."""
        request = self.running.pop(name)
        self.free_blocks += request.blocks
        self.free_states.append(request.state_id)

    def step(
        self, batch: Sequence[tuple[str, Sequence[int]]], num_padding_rows: int = 0, pad_requests: int = 0
    ) -> list[Tensor]:
        """One forward pass; returns each request's fp32 logits [its rows, V]."""
        context, token_ids = self.context(batch, num_padding_rows, pad_requests)
        logits = self.model.compute_logits(self.model(token_ids, context))
        for name, tokens in batch:
            self.running[name].num_computed += len(tokens)
        return list(logits[: sum(len(tokens) for _, tokens in batch)].split([len(t) for _, t in batch]))

    def verify(self, batch: Sequence[Draft]) -> list[Tensor]:
        """One pass in which rows may be held; returns as `step` does. Counts what was accepted as computed."""
        context, token_ids = self.context([(draft.name, draft.tokens) for draft in batch])
        context.held = HeldContext(
            *self.held,
            torch.tensor([[0, draft.num_accepted_before] for draft in batch], dtype=torch.int32),
            torch.tensor([draft.num_accepted is not None for draft in batch], dtype=torch.int32),
        )
        if not len(token_ids):
            self.model.absorb_held(context)
            return []
        logits = self.model.compute_logits(self.model(token_ids, context))
        lens = [len(draft.tokens) for draft in batch]
        for draft, num_rows in zip(batch, lens, strict=True):
            computed = num_rows if draft.num_accepted is None else draft.num_accepted
            self.running[draft.name].num_computed += computed
        return list(logits.split(lens))

    def context(
        self, batch: Sequence[tuple[str, Sequence[int]]], num_padding_rows: int = 0, pad_requests: int = 0
    ) -> tuple[ForwardContext, Tensor]:
        """The context and token ids of a step.

        Args:
            batch: (request, new tokens); an unknown request starts at position 0.
            num_padding_rows: rows after the last request's.
            pad_requests: requests without rows, with block 0 and state 0.
        """
        slots: list[int] = []
        positions: list[int] = []
        for name, tokens in batch:
            request = self._grow(name, len(tokens))
            for position in range(request.num_computed, request.num_computed + len(tokens)):
                block = request.blocks[position // self.block_size]
                slots.append(block * self.block_size + position % self.block_size)
                positions.append(position)
        requests = [self.running[name] for name, _ in batch]
        query_lens = [len(tokens) for _, tokens in batch] + [0] * pad_requests
        computed = [request.num_computed for request in requests] + [0] * pad_requests
        seq_lens = [done + new for done, new in zip(computed, query_lens, strict=True)]
        token_ids = [token for _, tokens in batch for token in tokens] + [0] * num_padding_rows
        rows = torch.tensor([positions + [0] * num_padding_rows])
        cos, sin = self.model.rotary_rows(rows)
        width = max((len(request.blocks) for request in requests), default=1)
        tables = [request.blocks + [0] * (width - len(request.blocks)) for request in requests]
        context = ForwardContext(
            query_start_loc=torch.tensor([0, *query_lens]).cumsum(0).int(),
            seq_lens=torch.tensor(seq_lens, dtype=torch.int32),
            num_computed=torch.tensor(computed, dtype=torch.int32),
            block_tables=torch.tensor(tables + [[0] * width] * pad_requests, dtype=torch.int32),
            slot_mapping=torch.tensor(slots + [-1] * num_padding_rows),
            state_ids=torch.tensor([r.state_id for r in requests] + [0] * pad_requests, dtype=torch.int32),
            positions=rows,
            cos=cos,
            sin=sin,
            kv_cache=self.kv_cache,
            conv_states=self.conv_states,
            recurrent_states=self.recurrent_states,
            block_size=self.block_size,
            host_query_lens=query_lens,
            host_seq_lens=seq_lens,
        )
        return context, torch.tensor(token_ids)

    def _grow(self, name: str, num_new: int) -> Running:
        request = self.running.get(name)
        if request is None:
            request = self.running[name] = Running([], self.free_states.pop())
        needed = -(-(request.num_computed + num_new) // self.block_size)
        while len(request.blocks) < needed:
            request.blocks.append(self.free_blocks.pop())
        return request
