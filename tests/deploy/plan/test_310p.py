"""The 310P: what vllm-ascend's own tests and guides run there, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.planner import plan, plan_once
from qanat.deploy.plan.wish import Wish
from tests.deploy.plan.test_impossible import wish_of
from tests.deploy.plan.wishes import KNOWLEDGE


def planned(model: str, **fields: Any) -> Plan:
    return plan(Wish(**{"model": model, "hardware": "310P", **fields}))


def refused(model: str, **fields: Any) -> ImpossibleWish:
    with pytest.raises(ImpossibleWish) as caught:
        planned(model, **fields)
    return caught.value


@pytest.mark.parametrize(
    ("model", "tp", "repository"),
    [
        ("Qwen3-8B", 1, "vllm-ascend/Qwen3-8B-w8a8sc-310-vllm-tp1"),
        ("Qwen3-14B", 1, "vllm-ascend/Qwen3-14B-w8a8sc-310-vllm-tp1"),
        ("Qwen3-32B", 4, "vllm-ascend/Qwen3-32B-w8a8sc-310-vllm-tp4"),
    ],
)
@pytest.mark.parametrize("image", ["0.18.0", "0.23.0"])
def test_compressed_weights_are_served_as_the_nightly_tests_do(
    model: str, tp: int, repository: str, image: str
) -> None:
    made = planned(model, image=image)
    role = made.role("server")
    assert (role.tensor_parallel_size, role.data_parallel_size) == (tp, 1)
    assert made.repository == repository
    assert role.flags["dtype"] == "float16"
    assert role.flags["load-format"] == "sharded_state"
    assert role.flags["quantization"] == "ascend"
    assert role.flags["enable-prefix-caching"] is False
    assert role.flags["gpu-memory-utilization"] <= 0.8
    assert role.flags["max-model-len"] <= 20480
    keys = role.flags["additional-config"]["ascend_compilation_config"]
    assert keys == {"enable_npugraph_ex": False, "fuse_norm_quant": False}
    assert role.capture_sizes[-1] == role.flags["max-num-seqs"]
    if tp > 1:
        assert len(role.capture_sizes) == 2
    assert "mamba-ssm-cache-dtype" not in role.flags


@pytest.mark.parametrize("model", ["Qwen3.5-4B", "Qwen3.6-27B", "Qwen3.6-35B-A3B"])
def test_hybrid_models_are_served_as_the_weekly_tests_do(model: str) -> None:
    made = planned(model, image="0.23.0")
    role = made.role("server")
    assert role.flags["dtype"] == "float16"
    assert role.flags["mamba-ssm-cache-dtype"] == "float16"
    assert "load-format" not in role.flags and "speculative-config" not in role.flags
    assert role.flags["additional-config"]["ascend_compilation_config"] == {"enable_npugraph_ex": False}
    assert "enable-expert-parallel" not in role.flags
    assert "multistream_overlap_shared_expert" not in role.flags["additional-config"]
    assert role.data_parallel_size == 1
    assert role.tensor_parallel_size == 1 or len(role.capture_sizes) == 2
    told = {choice.what: choice for choice in made.choices}
    assert told["--mamba-ssm-cache-dtype"].source and told["--dtype"].reason


def test_drafting_there_is_one_token_where_it_is_asked_for() -> None:
    role = planned("Qwen3.6-27B", speculation="mtp").role("server")
    assert role.flags["speculative-config"]["num_speculative_tokens"] == 1
    assert "310P" in refused("Qwen3-32B", speculation="eagle3").why


def test_weights_cut_for_other_ranks_are_refused() -> None:
    refusal = refused("Qwen3-32B", weights="w8a8sc", tensor_parallel_size=8)
    assert "4" in refusal.why and "tp4" in refusal.why
    first = plan_once(wish_of(refusal.nearest[0]), KNOWLEDGE)
    assert first.role("server").tensor_parallel_size == 4
    assert planned("Qwen3-32B", tensor_parallel_size=8).weights == "w8a8"
    own = planned("Qwen3-32B", tensor_parallel_size=2, model_path="/models/Qwen3-32B-w8a8sc-tp2")
    assert own.role("server").tensor_parallel_size == 2


def test_contexts_beyond_the_documented_ones_are_refused() -> None:
    refusal = refused("Qwen3-32B", max_model_len=32768)
    assert "20480" in refusal.why and "mask" in refusal.why
    assert wish_of(refusal.nearest[0]).max_model_len == 20480
    assert planned("Qwen3-32B", max_model_len=20480).role("server").flags["max-model-len"] == 20480
    assert "16384" in refused("Qwen3-30B-A3B", max_model_len=20480).why


def test_the_mask_is_counted() -> None:
    short, long = (planned("Qwen3-32B", max_model_len=length).role("server") for length in (4096, 20480))
    masks = [
        next(item.size_bytes for item in role.memory.items if item.name == "attention mask")
        for role in (short, long)
    ]
    assert masks == [2 * 2 * 4096**2, 2 * 2 * 20480**2]
    other = plan(Wish(model="Qwen3-32B", hardware="A3")).role("server")
    assert "attention mask" not in {item.name for item in other.memory.items}


def test_models_without_quantised_weights_run_in_float16() -> None:
    for model in ("Qwen3-0.6B", "Qwen3.5-2B"):
        made = planned(model)
        assert made.weights == "bf16" and made.repository == f"Qwen/{model}"
        assert made.role("server").flags["dtype"] == "float16"


def test_what_is_not_documented_there_is_refused() -> None:
    assert "0.23" in refused("Qwen3.5-4B", image="0.22.1rc1").why
    assert "310P" in refused("Qwen3-235B-A22B").why


def test_more_graphs_than_the_chip_has_events_for_are_refused() -> None:
    sizes = '{"cudagraph_capture_sizes": [1, 2, 4, 8]}'
    assert "NPU" in refused("Qwen3-32B", overrides={"compilation-config": sizes}).why
