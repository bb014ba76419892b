"""Limits, graphs and ports against what the trial cases tell."""

from __future__ import annotations

from typing import Any

import pytest

from qanat.deploy.knowledge.versions import must_parse
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.graphs import capture_sizes, fitting_sizes, has_common_multiple, step_of
from qanat.deploy.plan.planner import plan
from qanat.deploy.plan.subject import resolve
from qanat.deploy.plan.wish import Scenario, Topology, Wish
from qanat.deploy.sizing.capture import max_num_graphs, rewrite_sizes
from tests.deploy.plan.wishes import KNOWLEDGE, RELEASES


def wish(**fields: Any) -> Wish:
    return Wish(**{"model": "Qwen3.5-397B-A17B", "hardware": "A3", "weights": "w8a8", **fields})


def test_ops_001_sequences_beyond_the_states_are_refused_or_lowered() -> None:
    """An explicit number is refused with both numbers; a default is lowered with a warning."""
    tight = {"gpu_memory_utilization": 0.62, "max_model_len": 32768, "nodes": 1}
    with pytest.raises(ImpossibleWish, match=r"2000 sequences per rank.* \d+ fit"):
        plan(wish(**tight, concurrency=2000))
    made = plan(wish(**tight, scenario=Scenario.HIGH_THROUGHPUT))
    seqs = made.role("server").flags["max-num-seqs"]
    assert seqs < 128
    assert any(f"--max-num-seqs is {seqs}" in warning for warning in made.warnings)
    assert made.role("server").capture_sizes[-1] == seqs * 4


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("seqs", [1, 3, 12, 100])
def test_ops_002_decode_sizes_are_rows_times_one_and_k(k: int, seqs: int) -> None:
    fields: dict[str, Any] = {"num_speculative_tokens": k} if k else {"speculation": "off"}
    made = plan(wish(concurrency=seqs, nodes=1, **fields))
    role = made.role("server")
    assert all(size % (1 + k) == 0 for size in role.capture_sizes)
    assert role.capture_sizes[-1] == role.flags["max-num-seqs"] * (1 + k)
    assert role.flags["compilation-config"]["cudagraph_capture_sizes"] == list(role.capture_sizes)
    done = rewrite_sizes(role.capture_sizes, role.flags["max-num-batched-tokens"], 1, 1 + k)
    assert done.sizes == role.capture_sizes


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"port": 13389, "nodes": 2, "hardware": "A2"}, ["--data-parallel-rpc-port", "--port"]),
        ({"topology": Topology.DISAGGREGATED, "port": 8000, "proxy_port": 8000}, ["--proxy-port", "--port"]),
        ({"topology": Topology.DISAGGREGATED, "port": 36105}, ["kv_port", "--port"]),
        ({"topology": Topology.DISAGGREGATED, "proxy_port": 36110}, ["kv_port", "--proxy-port"]),
        ({"topology": Topology.DISAGGREGATED, "port": 36610}, ["kv_port", "--port"]),
        ({"port": 70000}, ["--port", "70000"]),
    ],
)
def test_ops_006_ports_are_checked_against_each_other(fields: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ImpossibleWish) as caught:
        plan(wish(**fields))
    for name in named:
        assert name in caught.value.why


def test_ops_006_no_two_ports_of_a_plan_are_the_same() -> None:
    made = plan(wish(topology=Topology.DISAGGREGATED, nodes=3, scenario=Scenario.LOW_LATENCY))
    assert made.proxy is not None
    for node in made.nodes:
        role = made.role(node.role)
        base = int(role.flags["kv-transfer-config"]["kv_port"])
        ranks = role.tensor_parallel_size * role.data_parallel_size
        used = [*range(base, base + ranks)]
        used += [node.flags[name] for name in ("port", "data-parallel-rpc-port") if name in node.flags]
        used += [made.proxy.port] if node.name == made.proxy.node else []
        assert len(used) == len(set(used))
        assert not set(used) & {*range(20000, 36000), *range(60000, 60016)}


OLD = [one for one in RELEASES if must_parse(one).base <= must_parse("0.20.2")]
DEEP = [
    (model, release)
    for model in ("Qwen3-235B-A22B", "Qwen3-32B", "Qwen3-30B-A3B", "Qwen3.5-35B-A3B")
    for release in OLD
    if not model.startswith("Qwen3.5") or must_parse(release) >= must_parse("0.17.0rc1")
]


@pytest.mark.parametrize(("model", "release"), DEEP)
def test_ops_012_piecewise_sizes_stay_within_the_streams(model: str, release: str) -> None:
    """94 layers with TP and EP leave room for few sizes; the smallest and the full batch are among them."""
    fields: dict[str, Any] = {"model": model, "image": release, "weights": "bf16", "concurrency": 256}
    made = plan(
        Wish(hardware="A3", nodes=1, overrides={"compilation-config.cudagraph_mode": "PIECEWISE"}, **fields)
    )
    role = made.role("server")
    facts = next(one for one in KNOWLEDGE.models if one.name == model)
    tp, dp = role.tensor_parallel_size, role.data_parallel_size
    overlap = role.flags["additional-config"].get("multistream_overlap_shared_expert", False)
    groups = (tp > 1) + (dp > 1) + ("enable-expert-parallel" in role.flags) + bool(overlap)
    drafts = int("speculative-config" in role.flags)
    is_aiv = role.env.get("HCCL_OP_EXPANSION_MODE") == "AIV"
    most = max_num_graphs(facts.num_layers, drafts, groups, facts.is_moe, dp > 1, is_aiv)
    assert 1 <= len(role.capture_sizes) <= max(1, most)
    k = role.flags.get("speculative-config", {}).get("num_speculative_tokens", 0)
    assert role.capture_sizes[-1] == role.flags["max-num-seqs"] * (1 + k)
    assert len(role.capture_sizes) == 1 or role.capture_sizes[0] == 1
    assert any("thinned out" in warning for warning in made.warnings) or most >= 20


def test_ops_012_the_reported_configuration() -> None:
    """94 layers, TP 16 with EP: AIV leaves 1800 streams / 95 per graph / 3 = 6 sizes."""
    subject = resolve(Wish(model="Qwen3-235B-A22B", hardware="A3", image="0.18.0"), "bf16", KNOWLEDGE)
    wanted = capture_sizes(1, 256)
    sizes, limit = fitting_sizes(wanted, subject, "PIECEWISE", 2, False, True, False, KNOWLEDGE)
    assert limit == 6 == len(sizes) < len(wanted)
    assert (sizes[0], sizes[-1]) == (1, 256)


def test_950_captures_four_sizes_where_it_cannot_more() -> None:
    for release, num in (("0.23.0", 4), ("0.26.0rc1", 4), ("0.30.0rc1", None)):
        subject = resolve(Wish(model="Qwen3.5-397B-A17B", hardware="950DT", image=release), "bf16", KNOWLEDGE)
        sizes, limit = fitting_sizes(
            capture_sizes(4, 512), subject, "PIECEWISE", 2, False, True, True, KNOWLEDGE
        )
        assert limit == num and (num is None or len(sizes) == num)
        assert fitting_sizes(sizes, subject, "FULL_DECODE_ONLY", 2, False, True, True, KNOWLEDGE) == (
            sizes,
            None,
        )


def test_capture_sizes_are_dense_below_and_end_with_the_batch() -> None:
    assert capture_sizes(4, 64) == (4, 8, 12, 16, 24, 32, 48, 64)
    assert capture_sizes(8, 8) == (8,)
    assert capture_sizes(8, 7) == ()
    sizes = capture_sizes(1, 10000)
    assert sizes[-1] == 10000 and len(sizes) < 60


def test_flashcomm1_and_speculation_need_a_common_multiple() -> None:
    old, new = must_parse("0.26.0rc1"), must_parse("0.30.0rc1")
    assert has_common_multiple(old, 8, 3, KNOWLEDGE) and has_common_multiple(old, 2, 3, KNOWLEDGE)
    assert not has_common_multiple(old, 8, 2, KNOWLEDGE) and has_common_multiple(new, 8, 2, KNOWLEDGE)
    assert step_of(8, 2, True, "FULL_DECODE_ONLY") == 24
    made = plan(wish(nodes=1, scenario=Scenario.HIGH_THROUGHPUT, num_speculative_tokens=2, concurrency=32))
    assert "enable_flashcomm1" not in made.role("server").flags["additional-config"]
    choice = next(one for one in made.choices if one.what == "enable_flashcomm1")
    assert choice.value == "off" and "GRA015" in choice.reason


def test_ranks_of_prefill_are_not_those_of_decode() -> None:
    made = plan(
        wish(
            weights="w8a8-mtp",
            topology=Topology.DISAGGREGATED,
            prefill_nodes=2,
            tensor_parallel_size=16,
            data_parallel_size=2,
        )
    )
    assert made.role("prefill").data_parallel_size == 2
    assert made.role("decode").data_parallel_size == 1
    assert made.role("decode").tensor_parallel_size == 16


def test_small_steps_take_fewer_sequences_where_nobody_said_how_many() -> None:
    role = plan(wish(model="Qwen3.5-35B-A3B", max_num_batched_tokens=8)).role("server")
    assert role.flags["max-num-seqs"] * 4 <= 8
    assert role.capture_sizes and role.capture_sizes[-1] <= 8


def test_exchange_of_experts_is_counted_where_it_happens() -> None:
    """Two A2 nodes have 32 of the 397B's experts on each NPU; from 24 on these do not use MC2."""
    made = plan(wish(hardware="A2", scenario=Scenario.HIGH_THROUGHPUT, nodes=2))
    role = made.role("server")
    communication = next(item for item in role.memory.items if item.name == "communication")
    assert "mc2" not in communication.how
    told = {choice.what: choice for choice in made.choices}
    assert "dispatch" not in told["HCCL_BUFFSIZE"].reason


def test_the_buffer_is_explained_by_what_needs_it() -> None:
    made = plan(wish(model="Qwen3.5-35B-A3B", concurrency=16, tensor_parallel_size=8, data_parallel_size=1))
    choice = next(one for one in made.choices if one.what == "HCCL_BUFFSIZE")
    tokens = made.role("server").flags["max-num-batched-tokens"]
    assert f"steps of {tokens} tokens" in choice.reason and "fused" in choice.reason
    assert "--max-num-batched-tokens" in choice.changes_if


def test_fused_experts_over_several_ranks_are_warned_of() -> None:
    made = plan(wish(model="Qwen3.5-35B-A3B"))
    assert made.role("server").data_parallel_size > 1
    assert any("8320" in warning for warning in made.warnings)
    alone = plan(wish(model="Qwen3.5-35B-A3B", data_parallel_size=1))
    assert not any("8320" in warning for warning in alone.warnings)


def test_prefill_steps_of_950_are_those_of_its_tutorial() -> None:
    made = plan(wish(weights="w4a4-mxfp4", hardware="950DT", topology=Topology.DISAGGREGATED))
    assert made.role("prefill").flags["max-num-batched-tokens"] == 8192


def test_a_release_without_newer_drivers_is_not_warned_of_them() -> None:
    for image, is_warned in (("0.11.0", False), ("0.18.0", True)):
        made = plan(Wish(model="Qwen3-32B", hardware="A3", image=image))
        assert any("25.5.1" in warning for warning in made.warnings) is is_warned
