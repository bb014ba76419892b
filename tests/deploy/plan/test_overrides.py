"""Overrides win over the planner, shape what follows from them, and are checked."""

from __future__ import annotations

from typing import Any

import pytest

from qanat.deploy.plan.commands import read_override
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.overrides import apply, read_overrides
from qanat.deploy.plan.planner import plan
from qanat.deploy.plan.wish import Topology, Wish
from tests.deploy.plan.wishes import KNOWLEDGE


def wish(overrides: dict[str, Any], **fields: Any) -> Wish:
    return Wish(model="Qwen3.5-35B-A3B", hardware="A3", weights="w8a8", overrides=overrides, **fields)


def test_fields_under_their_flags_shape_the_plan() -> None:
    made = plan(wish({"tensor-parallel-size": 4, "--data_parallel_size": 1, "max-model-len": 9000}))
    role = made.role("server")
    assert (role.tensor_parallel_size, role.data_parallel_size) == (4, 1)
    assert role.flags["max-model-len"] == 9000
    assert made.wish.overrides == {
        "tensor-parallel-size": 4,
        "--data_parallel_size": 1,
        "max-model-len": 9000,
    }


def test_sequences_lead_to_graphs_and_steps() -> None:
    made = plan(wish({"max-num-seqs": 6}))
    role = made.role("server")
    assert role.flags["max-num-seqs"] == 6
    assert role.capture_sizes[-1] == 6 * 4
    apart = plan(wish({"max-num-seqs": 6}, topology=Topology.DISAGGREGATED))
    assert apart.role("decode").flags["max-num-batched-tokens"] == 6 * 4


def test_dots_lead_into_json_and_keep_the_rest() -> None:
    made = plan(wish({"additional-config.enable_cpu_binding": False, "seed": 1024}))
    flags = made.role("server").flags
    assert flags["additional-config"]["enable_cpu_binding"] is False
    assert flags["additional-config"]["enable_fused_mc2"] == 1
    assert flags["seed"] == 1024
    told = {choice.what: choice for choice in made.choices}
    assert told["--seed"].source == "your wish"


def test_graphs_follow_an_override_of_mode_or_sizes() -> None:
    eager = plan(wish({"enforce-eager": True})).role("server")
    assert eager.flags["enforce-eager"] is True and "compilation-config" not in eager.flags
    assert eager.capture_sizes == ()
    sizes = plan(wish({"compilation-config": '{"cudagraph_capture_sizes": [8, 4, 16]}'})).role("server")
    assert sizes.capture_sizes == (4, 8, 16)
    assert sizes.flags["compilation-config"]["cudagraph_mode"] == "FULL_DECODE_ONLY"


def test_lists_are_lists_wherever_they_are_given() -> None:
    for overrides in (
        {"compilation-config.cudagraph_capture_sizes": read_override("[8, 4, 16]")},
        {"cudagraph-capture-sizes": read_override("[4,8,16]")},
        {"cudagraph-capture-sizes": "4 8 16"},
    ):
        role = plan(wish(overrides)).role("server")
        assert role.capture_sizes == (4, 8, 16)
        assert list(role.flags["compilation-config"]["cudagraph_capture_sizes"]) in ([8, 4, 16], [4, 8, 16])
        assert "cudagraph-capture-sizes" not in role.flags
    single = plan(wish({"cudagraph-capture-sizes": 8})).role("server")
    assert single.capture_sizes == (8,)


def test_switches_may_be_given_in_their_negated_form() -> None:
    made = plan(wish({"no-enable-prefix-caching": True}))
    assert made.role("server").flags["enable-prefix-caching"] is False
    assert not any("no-enable" in warning for warning in made.warnings)
    with pytest.raises(ImpossibleWish, match="contradicts"):
        plan(wish({"no-enable-prefix-caching": True}, prefix_caching=True))


def test_what_the_memory_does_not_count_is_told() -> None:
    made = plan(wish({"kv-cache-dtype": "fp8"}))
    assert any("--kv-cache-dtype" in warning for warning in made.warnings)


def test_slower_is_told_and_what_stops_the_start_is_refused_with_and_without_overrides() -> None:
    for overrides in ({}, {"seed": 1}):
        made = plan(wish(overrides, max_model_len=32768, max_num_batched_tokens=122880, concurrency=8))
        assert any("MEM003" in warning for warning in made.warnings)
        with pytest.raises(ImpossibleWish, match="60000 to 60015"):
            plan(wish(overrides, port=60003))


def test_what_only_warns_is_told_and_what_stops_the_start_is_refused() -> None:
    made = plan(wish({"gpu-memory-utilization": 0.93}, scenario="low-latency"))  # type: ignore[arg-type]
    assert any("GRA012" in warning for warning in made.warnings)
    with pytest.raises(ImpossibleWish, match="CLI018"):
        plan(wish({"block-size": "large"}))
    with pytest.raises(ImpossibleWish, match="MOE001"):
        plan(wish({"additional-config.enable_flashcomm1": True}, tensor_parallel_size=1))


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        ({"headless": True}, "headless"),
        ({"kv-transfer-config.kv_port": 1}, "kv-transfer-config"),
        ({"max-num-seqs": 0}, "max-num-seqs"),
        ({"max-num-seqs": True}, "max-num-seqs"),
        ({"max-model-len": "long"}, "max-model-len"),
        ({"additional-config": "{"}, "no JSON"),
        ({"a": 1, "a.b": 2}, "given twice"),
    ],
)
def test_overrides_that_make_no_sense_are_named(overrides: dict[str, Any], part: str) -> None:
    with pytest.raises(ImpossibleWish) as caught:
        plan(wish(overrides))
    assert part in caught.value.why


def test_yarn_gives_the_window_it_says() -> None:
    text = (
        '{"rope_parameters": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}}'
    )
    read = read_overrides(Wish(model="Qwen3-32B", hardware="A3", overrides={"hf-overrides": text}), KNOWLEDGE)
    assert (read.rope_factor, read.rope_window) == (4.0, 131072)
    plain = read_overrides(Wish(model="Qwen3-32B", hardware="A3"), KNOWLEDGE)
    assert (plain.rope_factor, plain.rope_window) == (1.0, None)


def test_applying_leaves_what_is_not_named() -> None:
    flags = {"a": 1, "b": {"c": {"d": 1, "e": 2}}}
    assert apply(flags, {"b": {"c": {"d": 5}}, "f": 6}) == {"a": 1, "b": {"c": {"d": 5, "e": 2}}, "f": 6}
    assert flags == {"a": 1, "b": {"c": {"d": 1, "e": 2}}}
