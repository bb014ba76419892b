"""Switches stand where each release reads them, and are left out where it does not have them."""

from __future__ import annotations

from typing import Any

import pytest

from qanat.deploy.knowledge.versions import Presence, must_parse
from qanat.deploy.plan.placing import key_path, put, variable
from qanat.deploy.plan.planner import plan
from qanat.deploy.plan.wish import Scenario, Topology, Wish
from tests.deploy.plan.wishes import KNOWLEDGE, RELEASES


@pytest.mark.parametrize(
    ("name", "release", "path", "env"),
    [
        ("enable_flashcomm1", "0.18.0", None, "VLLM_ASCEND_ENABLE_FLASHCOMM1"),
        ("enable_flashcomm1", "0.20.2rc1", ("enable_flashcomm1",), "VLLM_ASCEND_ENABLE_FLASHCOMM1"),
        ("enable_fused_mc2", "0.13.0", None, "VLLM_ASCEND_ENABLE_FUSED_MC2"),
        ("enable_fused_mc2", "0.11.0", None, None),
        ("enable_fused_mc2", "0.30.0rc1", ("enable_fused_mc2",), None),
        ("recompute_scheduler_enable", "0.23.0", ("recompute_scheduler_enable",), None),
        ("recompute_scheduler_enable", "0.26.0rc1", ("scheduler_config", "recompute_scheduler_enable"), None),
        ("enable_cpu_binding", "0.11.0", ("enable_cpu_binding",), None),
    ],
)
def test_where_a_switch_stands(
    name: str, release: str, path: tuple[str, ...] | None, env: str | None
) -> None:
    version = must_parse(release)
    assert key_path(name, version, KNOWLEDGE) == path
    assert variable(name, version, KNOWLEDGE) == env


def test_a_switch_is_written_once() -> None:
    keys: dict[str, Any] = {}
    env: dict[str, str] = {}
    assert put("enable_flashcomm1", True, must_parse("0.18.0"), KNOWLEDGE, keys, env)
    assert (keys, env) == ({}, {"VLLM_ASCEND_ENABLE_FLASHCOMM1": "1"})
    assert put("recompute_scheduler_enable", True, must_parse("0.26.0rc1"), KNOWLEDGE, keys, env)
    assert keys == {"scheduler_config": {"recompute_scheduler_enable": True}}
    assert not put("enable_fused_mc2", 1, must_parse("0.11.0"), KNOWLEDGE, keys, env)


@pytest.mark.parametrize("release", [one for one in RELEASES if must_parse(one) >= must_parse("0.17.0rc1")])
@pytest.mark.parametrize("topology", list(Topology))
def test_no_release_is_given_a_name_that_it_does_not_know(release: str, topology: Topology) -> None:
    nodes = 1 if topology is Topology.SINGLE_NODE else 2
    made = plan(
        Wish(
            model="Qwen3.5-35B-A3B",
            hardware="A3",
            weights="w8a8",
            image=release,
            topology=topology,
            nodes=nodes,
            scenario=Scenario.HIGH_THROUGHPUT,
        )
    )
    version = must_parse(release)
    for role in made.roles:
        for name in role.env:
            tables = [table for table in KNOWLEDGE.variables() if name in table.entries]
            states = {table.presence(name, version) for table in tables}
            assert not states or states & {Presence.PRESENT, Presence.UNSURE}, name
        for node in made.nodes:
            for name in {**role.flags, **node.flags}:
                assert KNOWLEDGE.serve_flags.presence(f"--{name}", version) is Presence.PRESENT, name
        for key in role.flags.get("additional-config", {}):
            table = KNOWLEDGE.config_keys("--additional-config")
            assert table is not None
            state = table.presence(f"--additional-config {key}", version)
            assert state is Presence.PRESENT, key


def test_dead_variables_are_never_written() -> None:
    dead = {"VLLM_USE_V1", "VLLM_VERSION", "TASK_QUEUE_ENABLE", "VLLM_ASCEND_ENABLE_PREFETCH_MLP"}
    dead |= {"VLLM_ASCEND_ENABLE_DENSE_OPTIMIZE", "VLLM_ASCEND_ENABLE_FLASHCOMM", "VLLM_RPC_TIMEOUT"}
    for release in RELEASES:
        for model in ("Qwen3-32B", "Qwen3-30B-A3B"):
            made = plan(Wish(model=model, hardware="A3", weights="bf16", image=release))
            assert not dead & set(made.role("server").env)


def test_fused_mc2_and_overlap_are_never_both_on() -> None:
    for chip in ("A2", "A3", "950DT"):
        for scenario in Scenario:
            made = plan(Wish(model="Qwen3.5-397B-A17B", hardware=chip, scenario=scenario))
            keys = made.role("server").flags["additional-config"]
            assert not (keys.get("enable_fused_mc2") and keys.get("multistream_overlap_shared_expert"))
            assert chip == "A3" or "enable_fused_mc2" not in keys


def test_expert_parallelism_can_be_given_up() -> None:
    made = plan(
        Wish(model="Qwen3.5-35B-A3B", hardware="A3", expert_parallel=False, scenario=Scenario.HIGH_THROUGHPUT)
    )
    flags = made.role("server").flags
    assert "enable-expert-parallel" not in flags
    assert not {"enable_flashcomm1", "enable_fused_mc2"} & set(flags["additional-config"])


def test_ray_spans_the_nodes_with_one_rank() -> None:
    made = plan(
        Wish(model="Qwen3.5-397B-A17B", hardware="A2", topology=Topology.RAY, nodes=2, weights="w8a8")
    )
    role = made.role("server")
    assert (role.tensor_parallel_size, role.data_parallel_size) == (16, 1)
    assert role.flags["distributed-executor-backend"] == "ray" and "async-scheduling" not in role.flags
    assert [len(node.npus) for node in made.nodes] == [8, 8]
    assert "port" in made.nodes[0].flags and made.nodes[1].flags == {}


def test_several_prefill_and_decode_engines() -> None:
    addresses = tuple(f"192.0.2.{number}" for number in range(1, 6))
    made = plan(
        Wish(
            model="Qwen3.5-397B-A17B",
            hardware="A3",
            num_prefill=3,
            num_decode=2,
            addresses=addresses,
            interface="eth1",
            proxy="qanat",
            concurrency=64,
        )
    )
    assert [node.name for node in made.nodes] == [
        "prefill-0",
        "prefill-1",
        "prefill-2",
        "decode-0",
        "decode-1",
    ]
    assert [node.instance for node in made.nodes] == [0, 1, 2, 0, 1]
    assert tuple(node.address for node in made.nodes) == addresses
    assert {node.env["HCCL_SOCKET_IFNAME"] for node in made.nodes} == {"eth1"}
    assert made.nodes[3].env["HCCL_IF_IP"] == "192.0.2.4"
    assert made.proxy is not None and made.proxy.program == "qanat router"
    assert not any("xample prox" in warning for warning in made.warnings)
    assert made.role("decode").flags["max-num-seqs"] == 32  # 64 requests over two decode engines


def test_the_faults_of_example_proxies_are_told_where_one_is_used() -> None:
    made = plan(Wish(model="Qwen3-32B", hardware="A3", topology=Topology.DISAGGREGATED))
    assert made.proxy is not None and made.proxy.program.endswith("_example.py")
    assert [warning for warning in made.warnings if warning.startswith("Example proxies do not check")]


def test_blocks_of_different_sizes_and_draft_models_are_told() -> None:
    made = plan(
        Wish(
            model="Qwen3.5-35B-A3B",
            hardware="A3",
            topology=Topology.DISAGGREGATED,
            tensor_parallel_size=8,
            decode_tensor_parallel_size=2,
        )
    )
    assert any("512 tokens on prefill and 2048 on decode" in warning for warning in made.warnings)
    drafted = plan(Wish(model="Qwen3-32B", hardware="A3", speculation="eagle3"))
    assert any("RedHatAI/Qwen3-32B-speculator.eagle3" in warning for warning in drafted.warnings)
    own = plan(Wish(model="Qwen3-32B", hardware="A3", speculation="eagle3", draft_model="/models/draft"))
    assert own.role("server").flags["speculative-config"]["model"] == "/models/draft"
    assert not any("draft" in warning for warning in own.warnings)


def test_no_more_ranks_than_requests() -> None:
    made = plan(Wish(model="Qwen3.5-35B-A3B", hardware="A3", concurrency=3))
    role = made.role("server")
    assert (role.tensor_parallel_size, role.data_parallel_size) == (2, 2)
    assert any("12 of 16 NPUs" in warning for warning in made.warnings)
    full = plan(Wish(model="Qwen3.5-35B-A3B", hardware="A3", concurrency=64))
    assert full.role("server").data_parallel_size == 8
