"""Products with the matrices of a model: linear layers, the head, experts, and rows of the embedding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.config.model_parts import MoeConfig
from qanat.kernels.cases.case import MAX_DECODE_ROWS, VALUE_TYPES, Call, Case, function_of, random_values
from qanat.kernels.native.limits import FLOAT, INT8
from qanat.kernels.quantised import GROUP_SIZE, Int4Matrix, Int8Matrix, QuantisedMatrix, with_whole_rows

Shape = tuple[int, int]
"""(outputs, inputs)."""

ROW_PARALLEL = ("out_proj", "o_proj", "down_proj", "shared down")
"""Whose inputs ranks share: their rows have eight segments (rule R12)."""


def product_cases(model: ModelConfig, rows: int, kind: str) -> Iterator[Case]:
    """One case for each shape of matrix that the model has."""
    for shape, names in matrices(model).items():
        if kind != "int4" or shape[1] % GROUP_SIZE == 0:
            yield _linear(names, shape, rows, kind)
    if rows <= MAX_DECODE_ROWS:  # of a prompt, only the last row has scores
        yield _logits((model.vocab_size, model.hidden_size), rows, kind)
    yield _embedding((model.vocab_size, model.hidden_size), rows, kind)
    if model.moe is not None:
        yield _experts(model.moe, model.hidden_size, rows, kind)


def matrices(model: ModelConfig) -> dict[Shape, list[str]]:
    """Names of the linear layers by their shape, in the order of the model."""
    hidden, dim = model.hidden_size, model.head_dim
    found: dict[Shape, list[str]] = {}

    def add(name: str, outputs: int, inputs: int) -> None:
        found.setdefault((outputs, inputs), []).append(name)

    if model.gdn is not None and model.num_linear_attention_layers:
        add("in_proj_qkv", model.gdn.conv_dim, hidden)
        add("in_proj_z", model.gdn.value_dim, hidden)
        add("in_proj_b|a", model.gdn.num_value_heads, hidden)
        add("out_proj", hidden, model.gdn.value_dim)
    if model.num_full_attention_layers:
        width = model.num_attention_heads * dim
        add("q_proj", width * (2 if model.attention_output_gate else 1), hidden)
        add("k|v_proj", model.num_key_value_heads * dim, hidden)
        add("o_proj", hidden, width)
    if model.moe is None or model.moe.mlp_only_layers:
        add("gate|up_proj", model.intermediate_size, hidden)
        add("down_proj", hidden, model.intermediate_size)
    if model.moe is not None:
        add("router", model.moe.num_experts, hidden)
        if model.moe.shared_expert_intermediate_size:
            add("shared gate|up", model.moe.shared_expert_intermediate_size, hidden)
            add("shared down", hidden, model.moe.shared_expert_intermediate_size)
    return found


def _matrix(shape: tuple[int, ...], kind: str) -> Tensor | QuantisedMatrix:
    """Random weights of this kind, scaled so that products stay of the size of their inputs."""
    scale = shape[-1] ** -0.5
    if kind == "int8":
        values = (random_values(*shape, dtype=torch.float32) * 40).round().clamp(-127, 127).to(torch.int8)
        return Int8Matrix(values, torch.full(shape[:-1], scale / 40))
    if kind == "int4":
        values = (random_values(*shape, dtype=torch.float32) * 3).round().clamp(-8, 7).to(torch.int8)
        scales = torch.full((*shape[:-1], shape[-1] // GROUP_SIZE), 2.0 ** round(math.log2(scale / 3)))
        return Int4Matrix(values, scales, GROUP_SIZE)
    return random_values(*shape, dtype=VALUE_TYPES[kind]) * scale


def packed_copies(
    shape: tuple[int, ...], kind: str, provider: str, op: str, count: int, *, is_row_parallel: bool = False
) -> list[Any]:
    """So many copies of the same weights, each in memory of its own."""
    source, pack = _matrix(shape, kind), function_of(op, provider)
    if not is_row_parallel and not isinstance(source, Tensor):
        source = with_whole_rows(source)
    return [_own(pack(source), source) for _ in range(count)]


def _own(packed: Any, source: Tensor | QuantisedMatrix) -> Any:
    """The packed weights; a copy where packing gave the source itself."""
    if packed is not source:
        return packed
    if isinstance(source, Tensor):
        return source.clone()
    return replace(source, values=source.values.clone())


def stored_bytes(num_values: int, num_inputs: int, kind: str) -> int:
    """Of so many values in rows of so many inputs, their scales included."""
    if kind == "int8":
        return num_values + num_values // num_inputs * 4
    if kind == "int4":
        return num_values // 2 + num_values // GROUP_SIZE * 2
    return num_values * VALUE_TYPES[kind].itemsize


def operands_of(kind: str) -> str:
    """What products with weights of this kind compute with."""
    return INT8 if kind in ("int8", "int4") else FLOAT


def _linear(names: list[str], shape: Shape, rows: int, kind: str) -> Case:
    outputs, inputs = shape
    is_row_parallel = all(name in ROW_PARALLEL for name in names)

    def prepare(provider: str, count: int) -> list[Call]:
        linear, x = function_of("linear", provider), random_values(rows, inputs, dtype=VALUE_TYPES[kind])
        weights = packed_copies(shape, kind, provider, "pack_matrix", count, is_row_parallel=is_row_parallel)
        return [lambda weight=weight: linear(x, weight) for weight in weights]

    part = f"{', '.join(names)} {outputs} x {inputs}"
    moved = (
        stored_bytes(outputs * inputs, inputs, kind) + rows * (inputs + outputs) * VALUE_TYPES[kind].itemsize
    )
    return Case(
        "linear", part, rows, kind, moved, float(rows * outputs * inputs), operands_of(kind), True, prepare
    )


def _logits(shape: Shape, rows: int, kind: str) -> Case:
    outputs, inputs = shape

    def prepare(provider: str, count: int) -> list[Call]:
        logits, hidden = function_of("logits", provider), random_values(rows, inputs, dtype=VALUE_TYPES[kind])
        weights = packed_copies(shape, kind, provider, "pack_matrix", count)
        return [lambda weight=weight: logits(hidden, weight) for weight in weights]

    moved = stored_bytes(outputs * inputs, inputs, kind) + rows * (
        inputs * VALUE_TYPES[kind].itemsize + outputs * 4
    )
    part = f"head {outputs} x {inputs}"
    return Case(
        "logits", part, rows, kind, moved, float(rows * outputs * inputs), operands_of(kind), True, prepare
    )


def _embedding(shape: Shape, rows: int, kind: str) -> Case:
    num_rows, width = shape

    def prepare(provider: str, count: int) -> list[Call]:
        embedding = function_of("embedding", provider)
        [table] = packed_copies(shape, kind, provider, "pack_matrix", 1)
        ids = [torch.randint(num_rows, (rows,)) for _ in range(count)]
        return [lambda some=some: embedding(some, table) for some in ids]

    moved = 2 * rows * width * VALUE_TYPES[kind].itemsize
    return Case("embedding", f"table {num_rows} x {width}", rows, kind, moved, 0.0, FLOAT, True, prepare)


def _experts(moe: MoeConfig, hidden: int, rows: int, kind: str) -> Case:
    inner, num_experts, top_k = moe.expert_intermediate_size, moe.num_experts, moe.top_k
    chosen = num_experts * (1 - (1 - top_k / num_experts) ** rows)
    one_expert = 3 * inner * hidden

    def prepare(provider: str, count: int) -> list[Call]:
        experts, x = (
            function_of("moe_experts", provider),
            random_values(rows, hidden, dtype=VALUE_TYPES[kind]),
        )
        [gate_up] = packed_copies((num_experts, 2 * inner, hidden), kind, provider, "pack_experts", 1)
        [down] = packed_copies(
            (num_experts, hidden, inner), kind, provider, "pack_experts", 1, is_row_parallel=True
        )
        ids = [torch.rand(rows, num_experts).topk(top_k, -1).indices for _ in range(count)]
        return [lambda some=some: experts(x, some, gate_up, down) for some in ids]

    moved = (
        int(chosen * stored_bytes(one_expert, hidden, kind)) + 2 * rows * hidden * VALUE_TYPES[kind].itemsize
    )
    part = f"{top_k} of {num_experts}, {inner} x {hidden}"
    return Case(
        "moe_experts", part, rows, kind, moved, float(rows * top_k * one_expert), FLOAT, True, prepare
    )
