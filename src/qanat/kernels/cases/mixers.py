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
        yield _heads(model, rows, kind)
        yield _attention(model, rows, kind, context_len)
    if model.gdn is not None and model.num_linear_attention_layers:
        yield _delta_net(model.gdn, rows, kind)


def _heads(model: ModelConfig, rows: int, kind: str) -> Case:
    num_requests, num_rows = decode_or_prompt(rows)
    heads, kv_heads, dim = model.num_attention_heads, model.num_key_value_heads, model.head_dim
    dtype, half = VALUE_TYPES[kind], model.rope.rotary_dim // 2

    def prepare(provider: str, count: int) -> list[Call]:
        function = function_of("qk_norm_rotary_store", provider)
        q, (k, v) = (
            random_values(rows, heads, dim, dtype=dtype),
            (random_values(rows, kv_heads, dim, dtype=dtype) for _ in range(2)),
        )
        weights = [random_values(dim, dtype=dtype) for _ in range(2)]
        angles = [random_values(rows, half, dtype=dtype) for _ in range(2)]
        cache = random_values(2, -(-rows // BLOCK_SIZE), BLOCK_SIZE, kv_heads, dim, dtype=dtype)
        slots, lens = torch.arange(rows), [num_rows] * num_requests
        return [lambda: function(q, k, v, *weights, 1e-6, True, *angles, cache, slots, lens)] * count

    moved = rows * dim * (2 * heads + 4 * kv_heads) * dtype.itemsize
    part = f"{heads} and {kv_heads} heads, {2 * half} of {dim} dimensions"
    return Case("qk_norm_rotary_store", part, rows, kind, moved, 0.0, FLOAT, False, prepare)


def _attention(model: ModelConfig, rows: int, kind: str, context_len: int) -> Case:
    num_requests, num_rows = decode_or_prompt(rows)
    seq_len = max(context_len, 1) if num_rows == 1 else num_rows
    heads, kv_heads, dim = model.num_attention_heads, model.num_key_value_heads, model.head_dim
    dtype, blocks_each = VALUE_TYPES[kind], -(-seq_len // BLOCK_SIZE)

    def prepare(provider: str, count: int) -> list[Call]:
        attention = function_of("paged_attention", provider)
        cache = random_values(2, count * num_requests * blocks_each, BLOCK_SIZE, kv_heads, dim, dtype=dtype)
        q, gate = (random_values(rows, heads, dim, dtype=dtype) for _ in range(2))
        tables = torch.arange(count * num_requests * blocks_each, dtype=torch.int32)
        tables = tables.view(count, num_requests, blocks_each)
        query_lens, seq_lens = [num_rows] * num_requests, [seq_len] * num_requests
        own_gate = gate if model.attention_output_gate else None

        def call(index: int) -> Call:
            table = tables[index]
            return lambda: attention(q, own_gate, cache, table, query_lens, seq_lens, dim**-0.5)

        return [call(index) for index in range(count)]

    seen = seq_len - (num_rows - 1) / 2
    moved = (
        num_requests * seq_len * 2 * kv_heads * dim * dtype.itemsize + 3 * rows * heads * dim * dtype.itemsize
    )
    part = f"{heads} on {kv_heads} heads of {dim}, {num_requests} x {num_rows} of {seq_len} tokens"
    return Case(
        "paged_attention", part, rows, kind, moved, rows * seen * heads * dim * 2, FLOAT, True, prepare
    )


def _delta_net(gdn: GatedDeltaNetConfig, rows: int, kind: str) -> Case:
    num_requests, num_rows = decode_or_prompt(rows)
    dtype, heads, channels, taps = VALUE_TYPES[kind], gdn.num_value_heads, gdn.conv_dim, gdn.conv_kernel_dim
    state = heads * gdn.key_head_dim * gdn.value_head_dim

    def prepare(provider: str, count: int) -> list[Call]:
        delta_net = function_of("gated_delta_net", provider)
        x = random_values(rows, channels, dtype=dtype)
        a, b = (random_values(rows, heads, dtype=dtype) for _ in range(2))
        weight, dt_bias = random_values(taps, channels, dtype=dtype).t(), random_values(heads, dtype=dtype)
        conv_states = random_values(count * num_requests, taps - 1, channels, dtype=dtype)
        shape = (count * num_requests, heads, gdn.key_head_dim, gdn.value_head_dim)
        states = random_values(*shape, dtype=torch.float32)
        given = (x, a, b, weight, torch.rand(heads), dt_bias, conv_states, states)
        computed = torch.full((num_requests,), BLOCK_SIZE, dtype=torch.int32)
        ids = torch.arange(count * num_requests, dtype=torch.int32).view(count, num_requests)
        lens = [num_rows] * num_requests
        return [lambda some=some: delta_net(*given, some, computed, lens, None) for some in ids]

    moved = 2 * num_requests * state * 4 + (2 * num_requests * (taps - 1) + rows) * channels * dtype.itemsize
    part = f"{heads} heads of {gdn.key_head_dim} x {gdn.value_head_dim}, {taps} taps"
    return Case("gated_delta_net", part, rows, kind, moved, 3.0 * rows * state, FLOAT, True, prepare)
