"""Three plans written by hand: one node, two nodes of one data parallel group, prefill and decode apart."""

from __future__ import annotations

from typing import Any

from qanat.deploy.plan.model import Choice, Node, Plan, Proxy, Role
from qanat.deploy.plan.wish import Scenario, Topology, Wish
from qanat.deploy.sizing.memory import Memory, MemoryItem

GIB = 2**30
W8A8 = "Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp"
CAPTURE_SIZES = (4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 112, 128)
FULL_DECODE: dict[str, Any] = {"cudagraph_mode": "FULL_DECODE_ONLY"}
MTP: dict[str, Any] = {"method": "qwen3_5_mtp", "num_speculative_tokens": 3}
A2_ENV = {
    "HCCL_OP_EXPANSION_MODE": "AIV",
    "HCCL_BUFFSIZE": "1024",
    "OMP_NUM_THREADS": "1",
    "OMP_PROC_BIND": "false",
    "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
}
BETWEEN_NODES = {"GLOO_SOCKET_IFNAME": "", "TP_SOCKET_IFNAME": "", "HCCL_SOCKET_IFNAME": "", "HCCL_IF_IP": ""}


def memory(weights_gib: float = 27.6) -> Memory:
    """A memory table whose sums agree."""
    items = (
        MemoryItem(
            name="weights",
            size_bytes=int(weights_gib * GIB),
            how="experts / 16 + the rest / 16",
            confidence="computed",
            is_in_budget=True,
        ),
        MemoryItem(
            name="activations",
            size_bytes=3 * GIB,
            how="tokens per step",
            confidence="unverified",
            is_in_budget=True,
        ),
        MemoryItem(
            name="communication",
            size_bytes=4 * GIB,
            how="2 groups x 2 x 1024 MiB",
            confidence="documentation",
            is_in_budget=False,
        ),
    )
    total = int(60.96 * GIB)
    budget = int(total * 0.9)
    pool = budget - sum(item.size_bytes for item in items if item.is_in_budget)
    return Memory(
        total_bytes=total,
        budget_bytes=budget,
        items=items,
        pool_bytes=pool,
        needed_pool_bytes=pool // 2,
        head_room_bytes=total - budget - 4 * GIB,
        block_tokens=512,
        num_blocks=2048,
        longest_context=262144,
        most_sequences=32,
    )


def choices() -> tuple[Choice, ...]:
    """Two decisions with their reasons."""
    return (
        Choice(
            what="--tensor-parallel-size",
            value="16",
            reason="the weights fit one node over all of its NPUs",
            source="memory model",
            confidence="computed",
            changes_if="4-bit weights: 8 is enough",
        ),
        Choice(
            what="HCCL_BUFFSIZE",
            value="1024",
            reason="dispatch and combine need 278 MiB for 512 tokens",
            source="vllm-ascend source",
            confidence="computed",
        ),
    )


def single_node() -> Plan:
    """Qwen3.5-397B-A17B in W8A8 on one A3 node, for low latency; weights in a folder of the node."""
    flags: dict[str, Any] = {
        "served-model-name": "qwen3.5",
        "host": "0.0.0.0",
        "port": 8010,
        "tensor-parallel-size": 16,
        "enable-expert-parallel": True,
        "max-model-len": 133000,
        "max-num-batched-tokens": 16384,
        "max-num-seqs": 32,
        "gpu-memory-utilization": 0.9,
        "enable-prefix-caching": False,
        "quantization": "ascend",
        "compilation-config": {**FULL_DECODE, "cudagraph_capture_sizes": list(CAPTURE_SIZES)},
        "speculative-config": {**MTP, "enforce_eager": True},
        "additional-config": {"enable_cpu_binding": True, "enable_fused_mc2": 1},
        "enable-auto-tool-choice": True,
        "tool-call-parser": "qwen3_coder",
        "reasoning-parser": "qwen3",
    }
    npus = tuple(range(16))
    env = {**A2_ENV, "ASCEND_RT_VISIBLE_DEVICES": ",".join(map(str, npus))}
    role = Role(
        name="server",
        tensor_parallel_size=16,
        data_parallel_size=1,
        num_instances=1,
        nodes_per_instance=1,
        flags=flags,
        env=env,
        capture_sizes=CAPTURE_SIZES,
        memory=memory(),
    )
    node = Node(
        name="server-0",
        role="server",
        instance=0,
        rank=0,
        address="",
        interface="",
        npus=npus,
        flags={},
        env={},
    )
    path = "/data/models/Qwen3.5-397B-A17B-w8a8-mtp"
    return Plan(
        wish=Wish(
            model="Qwen3.5-397B-A17B",
            hardware="atlas-800-a3",
            weights="w8a8-mtp",
            nodes=1,
            scenario=Scenario.LOW_LATENCY,
            max_model_len=133000,
            concurrency=32,
            model_path=path,
        ),
        model="Qwen3.5-397B-A17B",
        weights="w8a8-mtp",
        repository=W8A8,
        model_source=path,
        served_model_name="qwen3.5",
        chip="A3",
        release="0.23.0",
        image="quay.io/ascend/vllm-ascend:v0.23.0-a3",
        driver="25.5.1",
        cann="9.1.0",
        topology=Topology.SINGLE_NODE,
        roles=(role,),
        nodes=(node,),
        proxy=None,
        port=8010,
        choices=choices(),
    )


def two_nodes() -> Plan:
    """Qwen3.5-397B-A17B in W8A8 on two A2 nodes, one data parallel rank each; addresses not said yet."""
    flags: dict[str, Any] = {
        "served-model-name": "qwen3.5",
        "tensor-parallel-size": 8,
        "data-parallel-size": 2,
        "data-parallel-size-local": 1,
        "enable-expert-parallel": True,
        "max-model-len": 32768,
        "max-num-batched-tokens": 4096,
        "max-num-seqs": 16,
        "gpu-memory-utilization": 0.9,
        "enable-prefix-caching": False,
        "quantization": "ascend",
        "speculative-config": MTP,
        "compilation-config": FULL_DECODE,
        "additional-config": {"enable_cpu_binding": True, "multistream_overlap_shared_expert": True},
    }
    npus = tuple(range(8))
    env = {
        **A2_ENV,
        "VLLM_USE_MODELSCOPE": "True",
        "ASCEND_RT_VISIBLE_DEVICES": ",".join(map(str, npus)),
    }
    role = Role(
        name="server",
        tensor_parallel_size=8,
        data_parallel_size=2,
        num_instances=1,
        nodes_per_instance=2,
        flags=flags,
        env=env,
        capture_sizes=(4, 8, 16, 32, 64),
        memory=memory(),
    )
    group = {"data-parallel-address": "", "data-parallel-rpc-port": 13389}
    own: list[dict[str, Any]] = [
        {"host": "0.0.0.0", "port": 8000, **group, "api-server-count": 2},
        {"headless": True, "data-parallel-start-rank": 1, **group},
    ]
    nodes = tuple(
        Node(
            name=f"server-{rank}",
            role="server",
            instance=0,
            rank=rank,
            address="",
            interface="",
            npus=npus,
            flags=own[rank],
            env=BETWEEN_NODES,
        )
        for rank in range(2)
    )
    return Plan(
        wish=Wish(
            model="Qwen3.5-397B-A17B",
            hardware="atlas-800-a2",
            weights="w8a8-mtp",
            nodes=2,
            scenario=Scenario.HIGH_THROUGHPUT,
            max_model_len=32768,
            concurrency=32,
        ),
        model="Qwen3.5-397B-A17B",
        weights="w8a8-mtp",
        repository=W8A8,
        model_source=W8A8,
        served_model_name="qwen3.5",
        chip="A2",
        release="0.23.0",
        image="quay.io/ascend/vllm-ascend:v0.23.0",
        driver="25.5.1",
        cann="9.1.0",
        topology=Topology.MULTI_NODE,
        roles=(role,),
        nodes=nodes,
        proxy=None,
        port=8000,
        choices=choices(),
    )


def disaggregated() -> Plan:
    """Qwen3.5-397B-A17B in W8A8, prefill and decode on an A3 node each, layerwise; addresses said."""
    shared: dict[str, Any] = {
        "served-model-name": "qwen3.5",
        "tensor-parallel-size": 16,
        "enable-expert-parallel": True,
        "max-model-len": 16384,
        "gpu-memory-utilization": 0.9,
        "enable-prefix-caching": False,
        "disable-hybrid-kv-cache-manager": False,
        "quantization": "ascend",
    }
    npus = tuple(range(16))
    env = {
        **A2_ENV,
        "HCCL_BUFFSIZE": "1536",
        "VLLM_ENGINE_READY_TIMEOUT_S": "3600",
        "ASCEND_RT_VISIBLE_DEVICES": ",".join(map(str, npus)),
    }
    sizes = {"prefill": {"dp_size": 1, "tp_size": 16}, "decode": {"dp_size": 1, "tp_size": 16}}
    transfer = {"kv_connector": "MooncakeLayerwiseConnector", "kv_connector_extra_config": sizes}
    prefill_flags: dict[str, Any] = {
        **shared,
        "port": 30060,
        "max-num-batched-tokens": 4096,
        "max-num-seqs": 64,
        "enforce-eager": True,
        "speculative-config": {**MTP, "enforce_eager": True},
        "additional-config": {"enable_cpu_binding": True},
        "kv-transfer-config": {**transfer, "kv_role": "kv_producer", "kv_port": "36100"},
    }
    decode_flags: dict[str, Any] = {
        **shared,
        "port": 30050,
        "max-num-batched-tokens": 128,
        "max-num-seqs": 32,
        "speculative-config": MTP,
        "compilation-config": FULL_DECODE,
        "additional-config": {"recompute_scheduler_enable": True, "enable_cpu_binding": True},
        "kv-transfer-config": {**transfer, "kv_role": "kv_consumer", "kv_port": "36200"},
    }
    prefill = Role(
        name="prefill",
        tensor_parallel_size=16,
        data_parallel_size=1,
        num_instances=1,
        nodes_per_instance=1,
        flags=prefill_flags,
        env=env,
        capture_sizes=(),
        memory=memory(),
    )
    decode = Role(
        name="decode",
        tensor_parallel_size=16,
        data_parallel_size=1,
        num_instances=1,
        nodes_per_instance=1,
        flags=decode_flags,
        env=env,
        capture_sizes=(4, 8, 16, 32, 64, 128),
        memory=memory(),
    )
    addresses = {"prefill": "192.0.2.1", "decode": "192.0.2.2"}
    own_env = {**BETWEEN_NODES, **dict.fromkeys(list(BETWEEN_NODES)[:3], "eth0")}
    nodes = tuple(
        Node(
            name=f"{role.name}-0",
            role=role.name,
            instance=0,
            rank=0,
            address=addresses[role.name],
            interface="eth0",
            npus=npus,
            flags={"host": addresses[role.name]},
            env={**own_env, "HCCL_IF_IP": addresses[role.name]},
        )
        for role in (prefill, decode)
    )
    return Plan(
        wish=Wish(
            model="Qwen3.5-397B-A17B",
            hardware="atlas-800-a3",
            weights="w8a8-mtp",
            topology=Topology.DISAGGREGATED,
            num_prefill=1,
            num_decode=1,
            max_model_len=16384,
            concurrency=32,
            connector="MooncakeLayerwiseConnector",
            addresses=("192.0.2.1", "192.0.2.2"),
            interface="eth0",
        ),
        model="Qwen3.5-397B-A17B",
        weights="w8a8-mtp",
        repository=W8A8,
        model_source=W8A8,
        served_model_name="qwen3.5",
        chip="A3",
        release="0.23.0",
        image="quay.io/ascend/vllm-ascend:v0.23.0-a3",
        driver="25.5.1",
        cann="9.1.0",
        topology=Topology.DISAGGREGATED,
        roles=(prefill, decode),
        nodes=nodes,
        proxy=Proxy(
            program="load_balance_proxy_layerwise_server_example.py",
            connector="MooncakeLayerwiseConnector",
            node="prefill-0",
            port=8010,
        ),
        port=8010,
        choices=choices(),
        warnings=("The example proxy neither checks its engines nor goes on without one.",),
    )


PLANS = {"single_node": single_node, "two_nodes": two_nodes, "disaggregated": disaggregated}
"""The builders by name."""
