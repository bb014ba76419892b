"""Attention, convolution and delta rule over what earlier rows of a request have left in memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from qanat.config.model_config import ModelConfig
from qanat.config.model_parts import GatedDeltaNetConfig
from qanat.kernels.cases.case import VALUE_TYPES, Call, Case, decode_or_prompt, function_of, random_values
from qanat.kernels.native.limits import FLOAT

BLOCK_SIZE = 64


def mixer_cases(model: ModelConfig, rows: int, kind: str, context_len: int) -> Iterator[Case]:
    """The cases of a step of so many rows.

    Args:
        model: its shape.
        rows: see `decode_or_prompt`.
        kind: of values and cache.
        context_len: tokens that a request that decodes looks back at.
    """
    if model.num_full_attention_layers:
        yield _attention(model, rows, kind, context_len)
    if model.gdn is not None and model.num_linear_attention_layers:
        yield _conv(model.gdn, rows, kind)
        yield _delta(model.gdn, rows, kind)


def _attention(model: ModelConfig, rows: int, kind: str, context_len: int) -> Case:
    num_requests, num_rows = decode_or_prompt(rows)
    seq_len = max(context_len, 1) if num_rows == 1 else num_rows
    heads, kv_heads, dim = model.num_attention_heads, model.num_key_value_heads, model.head_dim
    dtype, blocks_each = VALUE_TYPES[kind], -(-seq_len // BLOCK_SIZE)

    def prepare(provider: str, count: int) -> list[Call]:
        attention = function_of("paged_attention", provider)
        cache = random_values(2, count * num_requests * blocks_each, BLOCK_SIZE, kv_heads, dim, dtype=dtype)
        q, gate = (random_values(rows, heads, dim, dtype=dtype) for _ in range(2))
        k, v = (random_values(rows, kv_heads, dim, dtype=dtype) for _ in range(2))
        tables = torch.arange(count * num_requests * blocks_each, dtype=torch.int32)
        tables = tables.view(count, num_requests, blocks_each)
        query_lens, seq_lens = [num_rows] * num_requests, [seq_len] * num_requests
        own_gate = gate if model.attention_output_gate else None

        def call(index: int) -> Call:
            table = tables[index]
            places = torch.arange(seq_len - num_rows, seq_len)
            slots = (table[:, places // BLOCK_SIZE].long() * BLOCK_SIZE + places % BLOCK_SIZE).flatten()
            return lambda: attention(q, k, v, own_gate, cache, slots, table, query_lens, seq_lens, dim**-0.5)

        return [call(index) for index in range(count)]

    seen = seq_len - (num_rows - 1) / 2
    moved = (
        num_requests * seq_len * 2 * kv_heads * dim * dtype.itemsize + 3 * rows * heads * dim * dtype.itemsize
    )
    part = f"{heads} on {kv_heads} heads of {dim}, {num_requests} x {num_rows} of {seq_len} tokens"
    return Case(
        "paged_attention", part, rows, kind, moved, rows * seen * heads * dim * 2, FLOAT, True, prepare
    )


def _conv(gdn: GatedDeltaNetConfig, rows: int, kind: str) -> Case:
    num_requests, num_rows = decode_or_prompt(rows)
    channels, taps, dtype = gdn.conv_dim, gdn.conv_kernel_dim, VALUE_TYPES[kind]

    def prepare(provider: str, count: int) -> list[Call]:
        conv = function_of("causal_conv", provider)
        x, weight = random_values(rows, channels, dtype=dtype), random_values(channels, taps, dtype=dtype)
        states = random_values(count * num_requests, taps - 1, channels, dtype=dtype)
        computed = torch.full((num_requests,), BLOCK_SIZE, dtype=torch.int32)
        ids = torch.arange(count * num_requests, dtype=torch.int32).view(count, num_requests)
        lens = [num_rows] * num_requests
        return [lambda some=some: conv(x, weight, states, some, computed, lens) for some in ids]

    moved = (
        2 * rows * channels + num_requests * 2 * (taps - 1) * channels + channels * taps
    ) * dtype.itemsize
    part = f"{channels} channels, {taps} taps"
    return Case("causal_conv", part, rows, kind, moved, 0.0, FLOAT, False, prepare)


def _delta(gdn: GatedDeltaNetConfig, rows: int, kind: str) -> Case:
    num_requests, num_rows = decode_or_prompt(rows)
    dtype, heads = VALUE_TYPES[kind], gdn.num_value_heads
    state = heads * gdn.key_head_dim * gdn.value_head_dim

    def prepare(provider: str, count: int) -> list[Call]:
        delta = function_of("gated_delta_rule", provider)
        q, k = (random_values(rows, gdn.num_key_heads, gdn.key_head_dim, dtype=dtype) for _ in range(2))
        v = random_values(rows, heads, gdn.value_head_dim, dtype=dtype)
        log_decay, beta = -torch.rand(rows, heads), torch.rand(rows, heads)
        states = random_values(
            count * num_requests, heads, gdn.key_head_dim, gdn.value_head_dim, dtype=torch.float32
        )
        computed = torch.full((num_requests,), BLOCK_SIZE, dtype=torch.int32)
        ids = torch.arange(count * num_requests, dtype=torch.int32).view(count, num_requests)
        lens = [num_rows] * num_requests
        starts = torch.arange(0, rows + 1, num_rows, dtype=torch.int32)
        return [
            lambda some=some: delta(q, k, v, log_decay, beta, states, some, computed, starts, lens)
            for some in ids
        ]

    moved = 2 * num_requests * state * 4
    part = f"{heads} heads of {gdn.key_head_dim} x {gdn.value_head_dim}"
    return Case("gated_delta_rule", part, rows, kind, moved, 3.0 * rows * state, FLOAT, True, prepare)
