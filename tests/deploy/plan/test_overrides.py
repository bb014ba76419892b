"""Overrides win over the planner, shape what follows from them, and are checked."""

from __future__ import annotations

from typing import Any

import pytest

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
