"""Every deployment of the guides comes out of the planner, with the values that their facts lead to."""

from __future__ import annotations

import pytest

from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.lint.engine import lint
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.planner import plan
from qanat.deploy.plan.script import documents
from tests.deploy.plan.wishes import GUIDES


def settings(name: str, role: str = "server") -> tuple[Plan, dict[str, object], dict[str, str]]:
    made = plan(GUIDES[name])
    return made, made.role(role).flags, made.role(role).env


def sizes(made: Plan, role: str = "server") -> tuple[int, int]:
    return made.role(role).tensor_parallel_size, made.role(role).data_parallel_size


@pytest.mark.parametrize("name", GUIDES)
def test_the_linter_finds_nothing_in_any_of_them(name: str) -> None:
    made = plan(GUIDES[name])
    found = [one for one in lint(documents(made), made.image) if one.severity is not Severity.INFO]
    assert not found
    for role in made.roles:
        assert role.memory.longest_context >= role.flags["max-model-len"]
        assert role.memory.head_room_bytes > 0


def test_35b_on_four_cards() -> None:
    """FlashComm1 over 8 ranks and 1 + 3 tokens: multiples of 8 up to 16 x 4, by variables as 0.18 has no keys yet."""
    made, flags, env = settings("35B on 4 cards of A3")
    assert made.image == "quay.io/ascend/vllm-ascend:v0.18.0rc1-a3"
    assert (made.cann, made.driver) == ("8.5.1", "25.5.1")
    assert sizes(made) == (8, 1)
    assert made.nodes[0].npus == tuple(range(8))
    assert made.role("server").capture_sizes == (8, 16, 24, 32, 48, 64)
    assert env["VLLM_ASCEND_ENABLE_FLASHCOMM1"] == env["VLLM_ASCEND_ENABLE_FUSED_MC2"] == "1"
    assert flags["additional-config"] == {"enable_cpu_binding": True}
    assert "PYTORCH_NPU_ALLOC_CONF" not in env and "async-scheduling" not in flags
    assert flags["max-num-batched-tokens"] == 8192


def test_397b_on_one_950dt() -> None:
    made, flags, env = settings("397B on one 950DT")
    assert made.image.endswith("-950dt")
    assert sizes(made) == (8, 1)
    assert (flags["max-model-len"], flags["max-num-seqs"]) == (133000, 128)
    assert made.role("server").capture_sizes[-1] == 128 * 4
    assert "enable_fused_mc2" not in flags["additional-config"]  # type: ignore[operator]
    assert not any(name.startswith("VLLM_ASCEND_ENABLE") for name in env)


def test_397b_on_one_a3_with_128k() -> None:
    made, flags, env = settings("397B on one A3, 128K")
    assert sizes(made) == (16, 1)
    assert flags["enable-prefix-caching"] is True
    assert flags["max-num-batched-tokens"] == 16384
    assert flags["gpu-memory-utilization"] == 0.9
    assert flags["speculative-config"] == {"method": "qwen3_5_mtp", "num_speculative_tokens": 3}
    assert made.role("server").memory.block_tokens == 512
    # 512 tokens over 16 ranks need 278 MiB for dispatch and combine; a tenth more, in steps of 64.
    assert env["HCCL_BUFFSIZE"] == "320"
    assert made.model_source == made.repository == "Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp"
    assert env["VLLM_USE_MODELSCOPE"] == "True"


def test_397b_on_two_a2() -> None:
    """Section 5.2 of the guide: one rank of 8 NPUs a node, no fused MC2, 16 sequences each."""
    made, flags, _ = settings("397B on two A2")
    assert made.topology.value == "multi-node" and made.image == "quay.io/ascend/vllm-ascend:v0.23.0.post1"
    assert sizes(made) == (8, 2)
    assert (flags["max-num-seqs"], flags["max-num-batched-tokens"]) == (16, 4096)
    assert flags["data-parallel-size-local"] == 1
    assert flags["enable-prefix-caching"] is False
    assert flags["additional-config"] == {
        "enable_cpu_binding": True,
        "multistream_overlap_shared_expert": True,
    }
    first, second = made.nodes
    assert first.flags["api-server-count"] == 2 and "headless" not in first.flags
    assert second.flags["headless"] is True and second.flags["data-parallel-start-rank"] == 1
    assert "port" not in second.flags and "api-server-count" not in second.flags
    assert first.flags["data-parallel-rpc-port"] == second.flags["data-parallel-rpc-port"] == 13389
    assert set(first.env) >= {"HCCL_IF_IP", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME"}


def test_397b_apart_on_two_a3() -> None:
    """Section 5.4, with its faults mended: the layerwise proxy, ports above 36000, recompute on decode only."""
    made, prefill, env = settings("397B apart on two A3", "prefill")
    decode = made.role("decode").flags
    assert sizes(made, "prefill") == sizes(made, "decode") == (16, 1)
    transfer = prefill["kv-transfer-config"]
    assert transfer == {  # type: ignore[comparison-overlap]
        "kv_connector": "MooncakeLayerwiseConnector",
        "kv_role": "kv_producer",
        "kv_port": "36100",
        "kv_connector_extra_config": {
            "prefill": {"dp_size": 1, "tp_size": 16},
            "decode": {"dp_size": 1, "tp_size": 16},
        },
    }
    assert made.proxy is not None
    assert made.proxy.program == "load_balance_proxy_layerwise_server_example.py"
    assert prefill["enforce-eager"] is True and "compilation-config" not in prefill
    assert "recompute_scheduler_enable" not in prefill["additional-config"]  # type: ignore[operator]
    assert decode["additional-config"]["recompute_scheduler_enable"] is True
    assert (decode["max-num-seqs"], decode["max-num-batched-tokens"]) == (32, 32 * 4)
    assert prefill["speculative-config"] == decode["speculative-config"]
    assert prefill["disable-hybrid-kv-cache-manager"] is decode["disable-hybrid-kv-cache-manager"] is False
    assert prefill["enable-prefix-caching"] is decode["enable-prefix-caching"] is False
    assert (prefill["max-num-seqs"], prefill["max-num-batched-tokens"]) == (64, 4096)
    assert env["HCCL_CONNECT_TIMEOUT"] == made.role("decode").env["HCCL_CONNECT_TIMEOUT"]
    assert made.port == made.proxy.port == 8000


def test_397b_apart_on_two_950dt() -> None:
    """Section 5.5: the connector that pulls, under its Ascend name, behind the plain proxy; 64 x 4 tokens a step."""
    made, prefill, _ = settings("397B apart on two 950DT", "prefill")
    decode = made.role("decode").flags
    transfer: dict[str, object] = decode["kv-transfer-config"]
    assert transfer["kv_connector"] == "MooncakeConnectorV1"
    assert transfer["kv_connector_extra_config"]["ascend_local_comm_res_path"] == "/etc/hixlep"  # type: ignore[index]
    assert made.proxy is not None and made.proxy.program == "load_balance_proxy_server_example.py"
    assert decode["max-num-batched-tokens"] == 256
    assert prefill["max-num-batched-tokens"] == 8192
    assert decode["additional-config"]["ascend_compilation_config"] == {"enable_npugraph_ex": False}
    assert prefill["speculative-config"] == decode["speculative-config"]


def test_397b_apart_on_48_npus() -> None:
    """Section 9.1: 2 x 8 on the prefill node, 2 x 16 over two decode nodes, 32 sequences a decode rank."""
    made, prefill, _ = settings("397B apart on 48 NPUs", "prefill")
    decode = made.role("decode").flags
    assert sizes(made, "prefill") == (2, 8)
    assert sizes(made, "decode") == (2, 16)
    assert [node.name for node in made.nodes] == ["prefill-0", "decode-0", "decode-1"]
    assert (decode["max-num-seqs"], decode["max-num-batched-tokens"]) == (32, 128)
    assert made.nodes[2].flags["data-parallel-start-rank"] == 8
    assert "enable_fused_mc2" not in prefill["additional-config"]  # type: ignore[operator]
    # One rank has room for the states of fewer than the 64 sequences that prefill engines get otherwise.
    assert 8 <= prefill["max-num-seqs"] < 64  # type: ignore[operator]


def test_397b_for_low_latency() -> None:
    made, flags, _ = settings("397B on one A3, low latency")
    assert made.weights == "w8a8"
    assert made.model_source == "/mnt/share/weights/Qwen3.5-397B-A17B-w8a8-org/"
    assert made.port == made.nodes[0].flags["port"] == 8010
    assert flags["additional-config"] == {"enable_cpu_binding": True, "enable_fused_mc2": 1}
    captured = made.role("server").capture_sizes
    assert captured[:4] == (4, 8, 12, 16) and captured[-1] == 512
    assert all(size % 4 == 0 for size in captured)


def test_397b_for_high_throughput() -> None:
    made, flags, _ = settings("397B on one A3, high throughput")
    captured = made.role("server").capture_sizes
    assert captured[0] == 16 and captured[-1] == 512 and all(size % 16 == 0 for size in captured)
    assert flags["additional-config"] == {
        "enable_cpu_binding": True,
        "enable_flashcomm1": True,
        "enable_fused_mc2": 1,
    }
    assert flags["max-num-batched-tokens"] == 16384


@pytest.mark.parametrize(
    ("name", "dp", "seqs", "tokens", "prefix", "has_flashcomm1"),
    [
        ("3.6-35B, long context", 1, 128, 16384, True, True),
        ("3.6-35B, high throughput", 4, 32, 8192, True, True),
        ("3.6-35B, low latency", 1, 16, 4096, False, False),
    ],
)
def test_36_35b_in_the_three_scenarios_of_its_guide(
    name: str, dp: int, seqs: int, tokens: int, prefix: bool, has_flashcomm1: bool
) -> None:
    made, flags, env = settings(name)
    assert sizes(made) == (2, dp)
    assert (flags["max-num-seqs"], flags["max-num-batched-tokens"]) == (seqs, tokens)
    assert flags["enable-prefix-caching"] is prefix
    assert "speculative-config" not in flags
    assert ("enable_flashcomm1" in flags["additional-config"]) is has_flashcomm1  # type: ignore[operator]
    assert "HCCL_OP_EXPANSION_MODE" not in env  # graphs hang with it in this release
    assert flags["max-num-batched-tokens"] >= made.role("server").memory.block_tokens


def test_32b_with_tp_4_under_the_oldest_release() -> None:
    made, flags, env = settings("32B with TP 4")
    assert made.image == "quay.io/ascend/vllm-ascend:v0.11.0-a3" and made.cann == "8.3.RC2"
    assert sizes(made) == (4, 1)
    assert flags["async-scheduling"] is True
    assert flags["tool-call-parser"] == "hermes"
    assert flags["quantization"] == "ascend"
    assert env["PYTORCH_NPU_ALLOC_CONF"] == "expandable_segments:True"
    assert "enable-expert-parallel" not in flags and "speculative-config" not in flags


def test_32b_with_tp_8_and_eagle3() -> None:
    made, flags, _ = settings("32B with TP 8 and eagle3")
    assert sizes(made) == (8, 1)
    assert flags["speculative-config"] == {
        "method": "eagle3",
        "model": "RedHatAI/Qwen3-32B-speculator.eagle3",
        "num_speculative_tokens": 3,
        "draft_tensor_parallel_size": 1,
    }
    assert made.role("server").capture_sizes[-1] == 32 * 4
    assert "quantization" not in flags
    assert flags["enable-prefix-caching"] is True
