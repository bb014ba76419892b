"""Buffers of HCCL, against the formula worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.deploy.sizing.communicators import (
    communicator_buffers,
    communicator_bytes,
    mc2_need_mib,
    recommended_buffer_mib,
    uses_mc2,
)
from tests.deploy.sizing.cases import CHIPS, KNOWLEDGE, MODELS, example, golden

NEEDS = golden("weights.yaml")["mc2_mib"]


@pytest.mark.parametrize("name", NEEDS)
def test_need_of_the_exchange_between_experts(name: str) -> None:
    for tp, needs in NEEDS[name].items():
        for largest, need in zip((64, 128, 256, 512), needs, strict=True):
            layout = example(model=MODELS[name], tp=tp, capture_sizes=(largest,))
            assert round(mc2_need_mib(layout)) == need, (tp, largest)


def test_the_guides_setting_of_1024_costs_four_gigabytes() -> None:
    buffers = communicator_buffers(example(hccl_buffer_mib=1024), KNOWLEDGE)
    assert buffers == {"world": 1024, "tp": 200, "ep": 200, "mc2": 1024}
    assert communicator_bytes(example(hccl_buffer_mib=1024), KNOWLEDGE) == 2 * 2**20 * 2448


def test_groups_follow_the_layout() -> None:
    alone = example(model=MODELS["Qwen3.5-35B-A3B"], tp=1)
    assert communicator_buffers(alone, KNOWLEDGE) == {}
    assert mc2_need_mib(alone) == 0
    dense = example(model=MODELS["Qwen3-32B"], tp=4, hccl_buffer_mib=300)
    assert communicator_buffers(dense, KNOWLEDGE) == {"world": 300, "tp": 200}
    spread = example(dp=2, num_redundant_experts=16)
    assert set(communicator_buffers(spread, KNOWLEDGE)) == {"world", "tp", "dp", "ep", "mc2", "eplb"}
    sliced = example(expert_parallel=False)
    assert "mc2" not in communicator_buffers(sliced, KNOWLEDGE)


def test_the_fused_operator_sees_every_step() -> None:
    fused = example(is_fused_mc2=True, capture_sizes=(4,), max_num_batched_tokens=65536)
    assert mc2_need_mib(fused) == pytest.approx((4096 * 10 * 4096 * 3 + 1e7) / 2**20)


@given(
    model=st.sampled_from([model for model in KNOWLEDGE.models if model.is_moe]),
    tp=st.sampled_from((1, 2, 4, 8, 16)),
    largest=st.integers(1, 4096),
    is_fused=st.booleans(),
)
def test_what_is_recommended_is_enough(model, tp, largest, is_fused) -> None:  # type: ignore[no-untyped-def]
    layout = example(model=model, tp=tp, capture_sizes=(largest,), is_fused_mc2=is_fused)
    recommended = recommended_buffer_mib(layout)
    assert recommended >= max(200, mc2_need_mib(layout))
    assert recommended == 200 or recommended < 1.1 * mc2_need_mib(layout) + 64


@pytest.mark.parametrize(
    ("chip", "model", "num_npus", "is_used"),
    [
        ("A3", "Qwen3.5-35B-A3B", 1, False),
        ("A3", "Qwen3.5-35B-A3B", 2, True),
        ("A2", "Qwen3.5-35B-A3B", 8, False),
        ("A2", "Qwen3.5-35B-A3B", 16, True),
        ("A2", "Qwen3.5-397B-A17B", 16, False),
        ("A2", "Qwen3.5-397B-A17B", 32, True),
        ("310P", "Qwen3.6-35B-A3B", 4, False),
        ("A3", "Qwen3-32B", 16, False),
    ],
)
def test_experts_exchange_tokens_where_the_chip_does(
    chip: str, model: str, num_npus: int, is_used: bool
) -> None:
    assert uses_mc2(CHIPS[chip], MODELS[model], num_npus) is is_used
