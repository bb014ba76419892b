"""Ops whose rows stand each for themselves. Their operands have just been written: they lie in a cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from qanat.config.model_config import ModelConfig
from qanat.kernels.cases.case import VALUE_TYPES, Call, Case, function_of, random_values
from qanat.kernels.native.limits import FLOAT

EPS = 1e-6


def rowwise_cases(model: ModelConfig, rows: int, kind: str) -> Iterator[Case]:
    """The cases of a step of so many rows."""
    dtype, hidden = VALUE_TYPES[kind], model.hidden_size
    yield _norm("rms_norm", rows, model.num_attention_heads, model.head_dim, kind)
    yield _norm("add_rms_norm", rows, 1, hidden, kind)
    if model.gdn is not None and model.num_linear_attention_layers:
        yield _norm("gated_rms_norm", rows, model.gdn.num_value_heads, model.gdn.value_head_dim, kind)
    inner = model.intermediate_size or (model.moe.shared_expert_intermediate_size if model.moe else 0)
    if inner:
        gate, up = (random_values(rows, inner, dtype=dtype) for _ in range(2))
        yield _case("swiglu", f"{inner} wide", rows, kind, 3 * rows * inner, (gate, up))
    yield _rotary(model, rows, kind)
    yield from _routing(model, rows, kind)


def _case(op: str, part: str, rows: int, kind: str, num_values: int, arguments: tuple[object, ...]) -> Case:
    def prepare(provider: str, count: int) -> list[Call]:
        function = function_of(op, provider)
        return [lambda: function(*arguments)] * count

    return Case(op, part, rows, kind, num_values * VALUE_TYPES[kind].itemsize, 0.0, FLOAT, False, prepare)


def _norm(op: str, rows: int, heads: int, size: int, kind: str) -> Case:
    dtype = VALUE_TYPES[kind]
    shape = (rows, heads, size) if heads > 1 else (rows, size)
    x, other, weight = (
        random_values(*shape, dtype=dtype),
        random_values(*shape, dtype=dtype),
        torch.ones(size),
    )
    own = {
        "rms_norm": (x, weight.to(dtype), EPS, True),
        "add_rms_norm": (x, other, weight.to(dtype), EPS, True),
        "gated_rms_norm": (x, other, weight.to(dtype), EPS),
    }
    num_values = rows * heads * size * {"rms_norm": 2, "add_rms_norm": 4, "gated_rms_norm": 3}[op]
    part = f"{heads} heads of {size}" if heads > 1 else f"{size} wide"
    return _case(op, part, rows, kind, num_values, own[op])


def _rotary(model: ModelConfig, rows: int, kind: str) -> Case:
    dtype, half = VALUE_TYPES[kind], model.rope.rotary_dim // 2
    section = model.rope.mrope_section
    positions = torch.arange(rows).expand(3 if section else 1, rows).contiguous()
    frequencies = torch.rand(half)
    part = f"{2 * half} of {model.head_dim} dimensions"
    given = (positions, frequencies, section, 1.0, dtype)
    return _case("rotary_rows", part, rows, kind, 2 * rows * half, given)


def _routing(model: ModelConfig, rows: int, kind: str) -> Iterator[Case]:
    moe, dtype, hidden = model.moe, VALUE_TYPES[kind], model.hidden_size
    if moe is None:
        return
    scores = random_values(rows, moe.num_experts, dtype=dtype)
    part = f"{moe.top_k} of {moe.num_experts}"
    yield _case(
        "moe_route", part, rows, kind, rows * moe.num_experts, (scores, moe.top_k, moe.norm_topk_prob)
    )
    out, weights = random_values(rows, moe.top_k, hidden, dtype=dtype), torch.rand(rows, moe.top_k)
    shared = random_values(rows, hidden, dtype=dtype) if moe.shared_expert_intermediate_size else None
    gate = random_values(rows, 1, dtype=dtype) if shared is not None else None
    num_values = rows * (moe.top_k + 1) * hidden + (rows * hidden if shared is not None else 0)
    yield _case("moe_combine", part, rows, kind, num_values, (out, weights, shared, gate))
