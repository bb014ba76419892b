"""Impossible wishes are refused with the numbers, and what is proposed instead can be planned."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from qanat.cli.deploy_actions.plan import COMMAND, PlanFlags, read_wish
from qanat.cli.reading import read_action
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.planner import plan, plan_once
from qanat.deploy.plan.wish import Topology, Wish
from tests.deploy.plan.wishes import KNOWLEDGE


def wish(**fields: Any) -> Wish:
    return Wish(**{"model": "Qwen3.5-397B-A17B", "hardware": "A3", **fields})


def wish_of(command: str) -> Wish:
    """What a proposed command line asks for, read as the program reads it."""
    words = shlex.split(command)
    assert words[:3] == ["qanat", "deploy", "plan"]
    flags, rest = read_action(COMMAND, PlanFlags, words[3:])
    assert not rest
    return read_wish(flags)


CASES = {
    "does not fit": (wish(hardware="A2", weights="w8a8", nodes=1), ["TP 8", "GiB", "2 nodes"]),
    "not enough nodes": (wish(hardware="A2", weights="bf16", nodes=2), ["does not fit", "GiB"]),
    "tp over heads": (wish(model="Qwen3.5-27B", tensor_parallel_size=16), ["16", "24 query heads"]),
    "tp over state heads": (wish(model="Qwen3.5-27B", tensor_parallel_size=3), ["3", "16 key heads"]),
    "tp over key heads": (wish(model="Qwen3-32B", tensor_parallel_size=16, hardware="A2"), ["16", "8 NPUs"]),
    "tp not through key heads": (wish(model="Qwen3-14B", tensor_parallel_size=5), ["5", "8 key heads"]),
    "dp beyond the NPUs": (wish(model="Qwen3.5-35B-A3B", data_parallel_size=9), ["9 ranks of 2 NPUs", "16"]),
    "experts over ranks": (
        wish(model="Qwen3.5-35B-A3B", tensor_parallel_size=1, data_parallel_size=3),
        ["256 experts", "3 NPUs"],
    ),
    "release too old": (wish(image="0.13.0"), ["0.17.0rc1"]),
    "950 too old": (wish(hardware="950DT", image="0.18.0"), ["0.23.0rc1"]),
    "release from the future": (wish(image="0.99.0"), ["0.30.0"]),
    "image of another chip": (wish(image="v0.23.0-950dt"), ["another chip", "a3"]),
    "mx weights on A3": (wish(weights="w4a4-mxfp4"), ["A3 does not compute in w4a4-mxfp4"]),
    "mx weights on A2": (wish(hardware="A2", weights="w8a8-mxfp8"), ["A2 does not compute"]),
    "4 bits on 310P": (
        wish(model="Qwen3-32B", hardware="310P", weights="w4a8"),
        ["310P does not compute in w4a8"],
    ),
    "large models on 310P": (wish(hardware="310P"), ["310P", "up to 35B"]),
    "context beyond the window": (
        wish(model="Qwen3-32B", max_model_len=100000),
        ["100000", "40960", "without YaRN"],
    ),
    "context beyond the cache": (
        wish(
            model="Qwen3-32B",
            hardware="A2",
            weights="bf16",
            npus_per_node=2,
            max_model_len=40960,
            concurrency=1,
            gpu_memory_utilization=0.6,
        ),
        ["GiB"],
    ),
    "1P1D on one node": (wish(topology=Topology.DISAGGREGATED, nodes=1), ["--nodes 1", "2 nodes"]),
    "nodes that do not add up": (
        wish(nodes=5, num_prefill=1, num_decode=1, prefill_nodes=1, decode_nodes=1),
        ["2"],
    ),
    "single node on two": (wish(topology=Topology.SINGLE_NODE, nodes=2), ["--nodes 2"]),
    "ray on one": (wish(topology=Topology.RAY, nodes=1), ["two nodes"]),
    "decode sizes without pd": (
        wish(topology=Topology.SINGLE_NODE, decode_tensor_parallel_size=2),
        ["--topology pd"],
    ),
    "no speculation with three tokens": (
        wish(speculation="off", num_speculative_tokens=3),
        ["contradicts --speculation off"],
    ),
    "mtp without a drafter": (wish(model="Qwen3-32B", speculation="mtp"), ["multi token prediction"]),
    "eagle3 for a hybrid model": (wish(speculation="eagle3"), ["its own MTP"]),
    "mtp in its first release": (wish(speculation="mtp", image="0.17.0rc1"), ["0.17.0rc1", "crashes"]),
    "draft model for mtp": (wish(speculation="mtp", draft_model="a/b"), ["eagle3"]),
    "experts of a dense model": (wish(model="Qwen3-32B", expert_parallel=True), ["no experts"]),
    "prefix caching apart": (wish(topology=Topology.DISAGGREGATED, prefix_caching=True), ["HYB005"]),
    "connector too young": (
        wish(topology=Topology.DISAGGREGATED, connector="MooncakeConnectorV1", image="0.18.0"),
        ["0.21.0rc1"],
    ),
    "upstream's connector": (wish(connector="MooncakeConnector"), ["for GPUs"]),
    "unknown connector": (wish(connector="Telegraph"), ["MooncakeConnectorV1"]),
    "prefill no multiple of decode": (
        wish(topology=Topology.DISAGGREGATED, tensor_parallel_size=4, decode_tensor_parallel_size=8),
        ["4", "no multiple", "8"],
    ),
    "addresses for other nodes": (wish(addresses=("192.0.2.1", "192.0.2.2"), nodes=1), ["2 nodes", "1"]),
    "no address": (wish(addresses=("node-a",), nodes=1), ["node-a"]),
    "one address twice": (wish(addresses=("192.0.2.1", "192.0.2.1"), hardware="A2"), ["twice"]),
    "no interface": (wish(interface="eth0; reboot"), ["eth0; reboot"]),
    "no name": (wish(served_model_name=" "), ["empty"]),
    "share of nothing": (wish(gpu_memory_utilization=0.0), ["above 0"]),
    "share that leaves no graphs": (wish(gpu_memory_utilization=0.99), ["GiB", "graphs"]),
    "memory the chip does not have": (wish(npu_memory_gib=48.0), ["64"]),
    "NPUs the node does not have": (wish(npus_per_node=17), ["16"]),
    "steps smaller than one request": (wish(max_num_batched_tokens=2), ["2 tokens", "1 + 3"]),
    "steps smaller than the batch": (
        wish(model="Qwen3.5-35B-A3B", max_num_batched_tokens=8, concurrency=400),
        ["8 tokens", "sequences of 1 + 3"],
    ),
    "port among the transfer's": (
        wish(topology=Topology.DISAGGREGATED, port=25000),
        ["25000", "20000 to 35999"],
    ),
    "proxy among the transfer's": (
        wish(topology=Topology.DISAGGREGATED, proxy_port=25000),
        ["--proxy-port 25000", "20000 to 35999"],
    ),
    "port among HCCL's": (wish(port=60003), ["60003", "60000 to 60015"]),
    "proxy among HCCL's": (
        wish(topology=Topology.DISAGGREGATED, proxy_port=60003),
        ["--proxy-port 60003", "60000 to 60015"],
    ),
    "name over two lines": (wish(served_model_name="x\ny"), ["--served-model-name"]),
    "override of the address": (wish(overrides={"host": "127.0.0.1"}), ["host", "0.0.0.0"]),
    "override of the key": (wish(overrides={"api-key": "secret"}), ["api-key", "plain"]),
    "override of the cache": (wish(overrides={"kv-cache-memory-bytes": 1}), ["kv-cache-memory-bytes"]),
    "quantisation of plain weights": (
        wish(model="Qwen3-32B", weights="bf16", overrides={"quantization": "ascend"}),
        ["quantization", "bf16"],
    ),
    "other quantisation": (wish(weights="w8a8", overrides={"quantization": "awq"}), ["awq", "ascend"]),
    "unknown model": (wish(model="Qwen3.5-400B-A17B"), ["Did you mean Qwen3.5-397B-A17B"]),
    "unknown machine": (wish(hardware="H200"), ["A3"]),
    "unknown weights": (wish(weights="w2a2"), ["w8a8"]),
    "weights against the name": (wish(model="x/Qwen3.5-397B-A17B-w8a8-mtp", weights="w4a8"), ["w8a8"]),
    "relative folder": (wish(model_path="models/x"), ["begins with /"]),
    "override of a node's flag": (wish(overrides={"headless": True}), ["headless"]),
    "override against a field": (
        wish(max_model_len=8192, overrides={"max-model-len": 4096}),
        ["4096", "8192"],
    ),
    "override of an unknown flag": (wish(overrides={"max-num-seqz": 4}), ["CLI017", "--max-num-seqs"]),
    "override of an unknown key": (
        wish(image="0.30.0rc1", overrides={"additional-config.enable_flashcom": True}),
        ["ADD002"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_with_the_numbers(name: str) -> None:
    asked, parts = CASES[name]
    with pytest.raises(ImpossibleWish) as caught:
        plan(asked)
    for part in parts:
        assert part in caught.value.why
    assert caught.value.nearest or name in ("unknown model", "unknown machine")
    for command in caught.value.nearest:
        assert command in caught.value.message
        assert plan_once(wish_of(command), KNOWLEDGE).roles


def test_a_wish_that_is_too_large_by_little_is_told_what_fits() -> None:
    asked = wish(hardware="A2", weights="w8a8", nodes=1)
    with pytest.raises(ImpossibleWish) as caught:
        plan(asked)
    assert wish_of(caught.value.nearest[0]).nodes == 2


def test_more_requests_than_states_are_refused_with_the_number_that_fits() -> None:
    asked = wish(weights="w8a8", nodes=1, concurrency=100000, max_model_len=8192)
    with pytest.raises(ImpossibleWish) as caught:
        plan(asked)
    first = wish_of(caught.value.nearest[0])
    assert first.concurrency is not None and first.concurrency < 100000
    assert str(plan_once(first, KNOWLEDGE).role("server").flags["max-num-seqs"]) in caught.value.why


def test_yarn_is_proposed_in_a_form_that_works() -> None:
    for model, length in (("Qwen3-32B", 100000), ("Qwen3.5-35B-A3B", 500000)):
        asked = wish(model=model, max_model_len=length, concurrency=1)
        with pytest.raises(ImpossibleWish) as caught:
            plan(asked)
        with_yarn = [wish_of(command) for command in caught.value.nearest if "yarn" in command]
        assert [one.max_model_len for one in with_yarn] == [length]
        made = plan(with_yarn[0])
        assert made.role("server").flags["max-model-len"] == length
        assert "yarn" in str(made.role("server").flags["hf-overrides"])


def nearest(asked: Wish) -> list[Wish]:
    with pytest.raises(ImpossibleWish) as caught:
        plan(asked)
    return [wish_of(command) for command in caught.value.nearest]


@pytest.mark.parametrize(
    "fields",
    [
        {"concurrency": 0},
        {"port": 70000},
        {"addresses": ("999.0.0.1",)},
        {"topology": Topology.DISAGGREGATED, "proxy_port": 8100},
        {"overrides": {"host": "127.0.0.1"}},
        {"max_num_batched_tokens": 2},
        {"max_num_batched_tokens": 1},
    ],
)
def test_what_is_proposed_keeps_model_machine_and_nodes(fields: dict[str, Any]) -> None:
    proposed = nearest(wish(**fields))
    assert proposed
    for one in proposed:
        assert (one.hardware, one.nodes) == ("A3", None)
        assert one.topology is fields.get("topology")


def test_an_unknown_release_leads_to_the_newest() -> None:
    assert nearest(wish(image="v0.99.0"))[0].image == "0.30.0rc1"
    assert nearest(wish(image="v0.13.0"))[0].image == "0.17.0rc1"


def test_too_small_a_share_leads_to_the_smallest_that_works() -> None:
    share = nearest(wish(gpu_memory_utilization=0.05))[0].gpu_memory_utilization
    assert share is not None and 0.3 < share < 0.6


def test_too_many_sequences_lead_to_as_many_as_fit() -> None:
    first = nearest(wish(nodes=1, overrides={"max-num-seqs": 5000}))[0]
    assert 0 < int(first.overrides["max-num-seqs"]) < 5000  # type: ignore[arg-type]


def test_overrides_of_speculation_lead_to_the_fields() -> None:
    assert nearest(wish(overrides={"speculative-config": "null"}))[0].speculation == "off"
    single = nearest(wish(overrides={"speculative-config.num_speculative_tokens": 1}))[0]
    assert single.num_speculative_tokens == 1
