"""Calls that stand for several ops: products of the same rows, mixtures of experts, rows quantised on the way."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from qanat.config.model_config import ModelConfig
from qanat.config.model_parts import MoeConfig
from qanat.kernels.cases.case import VALUE_TYPES, Call, Case, function_of, random_values
from qanat.kernels.cases.products import Shape, operands_of, packed_copies, stored_bytes
from qanat.kernels.native.limits import FLOAT
from qanat.kernels.quantised import GROUP_SIZE, Int4Matrix, Int8Matrix
from qanat.kernels.rows import RowFormat, SharedExpert

EPS = 1e-6
QUANTISED = ("int8", "int4")


def shared_cases(model: ModelConfig, rows: int, kind: str) -> Iterator[Case]:
    """The cases of a step of so many rows; rows are quantised for quantised weights only."""
    hidden, gdn, moe = model.hidden_size, model.gdn, model.moe
    inner = model.intermediate_size or (moe.shared_expert_intermediate_size if moe else 0)
    if kind != "int4" or hidden % GROUP_SIZE == 0:
        for name, outputs in _groups(model, inner).items():
            yield _linears(name, [(each, hidden) for each in outputs], rows, kind)
        if moe is not None:
            yield _mixture(moe, hidden, rows, kind)
    if kind not in QUANTISED:
        return
    yield _rows_case("share_rows", (rows, hidden), kind, hidden, 1)
    yield _rows_case("shared_add_rms_norm", (rows, hidden), kind, hidden, 4)
    if inner:
        yield _rows_case("shared_swiglu", (rows, inner), kind, inner, 3)
    if gdn is not None and model.num_linear_attention_layers:
        shape = (rows, gdn.num_value_heads, gdn.value_head_dim)
        yield _rows_case("shared_gated_rms_norm", shape, kind, gdn.value_dim, 3)


def _groups(model: ModelConfig, inner: int) -> dict[str, list[int]]:
    """Outputs of the matrices that one call multiplies the same rows with."""
    found: dict[str, list[int]] = {}
    if model.num_full_attention_layers:
        width = model.num_attention_heads * model.head_dim
        kv_width = model.num_key_value_heads * model.head_dim
        found["q, k, v"] = [width * (2 if model.attention_output_gate else 1), kv_width, kv_width]
    if model.gdn is not None and model.num_linear_attention_layers:
        found["in_proj_qkv, z"] = [model.gdn.conv_dim, model.gdn.value_dim]
    if inner:
        found["gate, up"] = [inner, inner]
    return found


def _linears(name: str, shapes: list[Shape], rows: int, kind: str) -> Case:
    inputs, outputs = shapes[0][1], sum(shape[0] for shape in shapes)

    def prepare(provider: str, count: int) -> list[Call]:
        linears, x = function_of("linears", provider), random_values(rows, inputs, dtype=VALUE_TYPES[kind])
        copies = [packed_copies(shape, kind, provider, "pack_matrix", count) for shape in shapes]
        return [lambda own=own: linears(x, own) for own in zip(*copies, strict=True)]

    moved = stored_bytes(outputs * inputs, inputs, kind)
    moved += rows * (inputs + outputs) * VALUE_TYPES[kind].itemsize
    part, macs = f"{name} {outputs} x {inputs}", float(rows * outputs * inputs)
    return Case("linears", part, rows, kind, moved, macs, operands_of(kind), True, prepare)


def _mixture(moe: MoeConfig, hidden: int, rows: int, kind: str) -> Case:
    inner, num_experts, top_k = moe.expert_intermediate_size, moe.num_experts, moe.top_k
    chosen = num_experts * (1 - (1 - top_k / num_experts) ** rows)
    shared_inner, dtype = moe.shared_expert_intermediate_size, VALUE_TYPES[kind]

    def prepare(provider: str, count: int) -> list[Call]:
        mixture, x = function_of("moe_mixture", provider), random_values(rows, hidden, dtype=dtype)
        [gate_up] = packed_copies((num_experts, 2 * inner, hidden), kind, provider, "pack_experts", 1)
        [down] = packed_copies(
            (num_experts, hidden, inner), kind, provider, "pack_experts", 1, is_row_parallel=True
        )
        weights, shared = torch.rand(rows, top_k), None
        if shared_inner:
            [own] = packed_copies(
                (hidden, shared_inner), kind, provider, "pack_matrix", 1, is_row_parallel=True
            )
            gate, up = (random_values(rows, shared_inner, dtype=dtype) for _ in range(2))
            shared = SharedExpert(gate, up, own, random_values(rows, 1, dtype=dtype))
        ids = [torch.rand(rows, num_experts).topk(top_k, -1).indices for _ in range(count)]
        return [lambda some=some: mixture(x, some, weights, gate_up, down, shared) for some in ids]

    num_weights = 3 * inner * hidden
    moved = int(chosen * stored_bytes(num_weights, hidden, kind)) + 2 * rows * hidden * dtype.itemsize
    moved += stored_bytes(shared_inner * hidden, hidden, kind)
    macs = float(rows * (top_k * num_weights + shared_inner * hidden))
    part = f"{top_k} of {num_experts}, {inner} x {hidden}" + (", shared expert" if shared_inner else "")
    return Case("moe_mixture", part, rows, kind, moved, macs, FLOAT, True, prepare)


def _rows_case(op: str, shape: tuple[int, ...], kind: str, size: int, num_moved: int) -> Case:
    """An op whose result is quantised: `num_moved` numbers for each of a row's `size`, and its int8."""
    dtype, form, rows = VALUE_TYPES[kind], row_format_of(kind, size), shape[0]
    x, other = (random_values(*shape, dtype=dtype) for _ in range(2))
    weight = torch.ones(shape[-1], dtype=dtype)
    arguments: tuple[object, ...] = {
        "share_rows": (x, form),
        "shared_add_rms_norm": (x, other, weight, EPS, True, form),
        "shared_gated_rms_norm": (x, other, weight, EPS, form),
        "shared_swiglu": (x, other, form),
    }[op]

    def prepare(provider: str, count: int) -> list[Call]:
        function = function_of(op, provider)
        return [lambda: function(*arguments)] * count

    moved = rows * size * (num_moved * dtype.itemsize + 1)
    return Case(op, f"{size} wide", rows, kind, moved, 0.0, FLOAT, False, prepare)


def row_format_of(kind: str, num_inputs: int) -> RowFormat:
    """How matrices of this kind with so many inputs read their rows."""
    values = torch.empty(1, num_inputs, dtype=torch.int8)
    if kind == "int4":
        int4 = Int4Matrix(values, torch.ones(1, -(-num_inputs // GROUP_SIZE)), GROUP_SIZE)
        return RowFormat(True, num_inputs, int4.inputs_per_segment, int4.inputs_per_cell, False, 1.0, 0.0)
    return RowFormat(
        False, num_inputs, Int8Matrix(values, torch.ones(1)).inputs_per_segment, 0, False, 1.0, 0.0
    )
