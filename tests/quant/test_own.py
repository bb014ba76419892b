"""Which matrices our own schemes quantise."""

from __future__ import annotations

import pytest

from qanat.quant.own import Precision, precision_of


@pytest.mark.parametrize(
    ("layer", "eight", "four"),
    [
        ("lm_head", "int8", "int8"),
        ("model.embed_tokens", "int8", "int8"),
        ("model.layers.3.self_attn.q_proj", "int8", "int4"),
        ("model.layers.3.self_attn.o_proj", "int8", "int4"),
        ("model.layers.0.linear_attn.in_proj_qkv", "int8", "int4"),
        ("model.layers.0.linear_attn.in_proj_z", "int8", "int4"),
        ("model.layers.0.linear_attn.out_proj", "int8", "int4"),
        ("model.layers.0.mlp.experts", "int8", "int4"),
        ("model.layers.0.mlp.shared_expert.down_proj", "int8", "int4"),
        ("model.layers.0.mlp.gate_proj", "int8", "int4"),
        ("model.layers.0.mlp.gate", None, None),
        ("model.layers.0.mlp.shared_expert_gate", None, None),
        ("model.layers.0.linear_attn.in_proj_a", None, None),
        ("model.layers.0.linear_attn.in_proj_b", None, None),
    ],
)
def test_layers(layer: str, eight: str | None, four: str | None) -> None:
    got = [precision_of(scheme, layer, 128, 128) for scheme in ("w8a8", "w4a8")]
    assert [each and each.value for each in got] == [eight, four]


def test_shapes_that_four_bits_do_not_fit_become_int8() -> None:
    layer = "model.layers.0.mlp.experts"
    assert precision_of("w4a8", layer, 128, 48) is Precision.INT8
    assert precision_of("w4a8", layer, 127, 64) is Precision.INT8
