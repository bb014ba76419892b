"""Wishes for tests: one for each deployment of the guides, and a strategy for any wish."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.wish import Scenario, Topology, Wish

KNOWLEDGE = load_knowledge()
MODELS = [model.name for model in KNOWLEDGE.models]
CHIPS = [chip.name for chip in KNOWLEDGE.chips]
RELEASES = [release.name for release in KNOWLEDGE.releases]
VARIANTS = list(KNOWLEDGE.tables["weight_formats"].entries)
SIZES = (None, None, None, 0, 1, 2, 3, 4, 8, 16, 32)

GUIDES = {
    "35B on 4 cards of A3": Wish(
        model="Qwen3.5-35B-A3B",
        hardware="910C",
        weights="w8a8-mtp",
        image="0.18.0rc1",
        nodes=1,
        npus_per_node=8,
        tensor_parallel_size=8,
        scenario=Scenario.HIGH_THROUGHPUT,
        max_model_len=8192,
        concurrency=16,
    ),
    "397B on one 950DT": Wish(
        model="Qwen3.5-397B-A17B",
        hardware="950DT",
        weights="w4a4-mxfp4",
        nodes=1,
        scenario=Scenario.LONG_CONTEXT,
        max_model_len=133000,
        concurrency=128,
    ),
    "397B on one A3, 128K": Wish(
        model="Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp",
        hardware="atlas-800-a3",
        nodes=1,
        scenario=Scenario.LONG_CONTEXT,
        max_model_len=133000,
        concurrency=128,
    ),
    "397B on two A2": Wish(
        model="Qwen3.5-397B-A17B",
        hardware="atlas-800-a2",
        weights="w8a8-mtp",
        nodes=2,
        scenario=Scenario.HIGH_THROUGHPUT,
        max_model_len=32768,
        concurrency=32,
    ),
    "397B apart on two A3": Wish(
        model="Qwen3.5-397B-A17B",
        hardware="A3",
        weights="w8a8-mtp",
        topology=Topology.DISAGGREGATED,
        nodes=2,
        max_model_len=16384,
        concurrency=32,
    ),
    "397B apart on two 950DT": Wish(
        model="Qwen3.5-397B-A17B",
        hardware="950DT",
        weights="w4a4-mxfp4",
        num_prefill=1,
        num_decode=1,
        scenario=Scenario.LONG_CONTEXT,
        max_model_len=133000,
        concurrency=64,
    ),
    "397B apart on 48 NPUs": Wish(
        model="Qwen3.5-397B-A17B",
        hardware="A3",
        weights="w8a8-mtp",
        topology=Topology.DISAGGREGATED,
        nodes=3,
        scenario=Scenario.LOW_LATENCY,
        max_model_len=16384,
        concurrency=512,
    ),
    "397B on one A3, low latency": Wish(
        model="/mnt/share/weights/Qwen3.5-397B-A17B-w8a8-org/",
        hardware="Atlas 800I A3",
        nodes=1,
        scenario=Scenario.LOW_LATENCY,
        max_model_len=5000,
        concurrency=128,
        port=8010,
    ),
    "397B on one A3, high throughput": Wish(
        model="/mnt/share/weights/Qwen3.5-397B-A17B-w8a8-org/",
        hardware="Atlas 800I A3",
        nodes=1,
        scenario=Scenario.HIGH_THROUGHPUT,
        max_model_len=5000,
        concurrency=128,
        port=8010,
    ),
    "3.6-35B, long context": Wish(
        model="Qwen3.6-35B-A3B",
        hardware="A3",
        weights="w8a8",
        image="v0.22.1rc1-a3",
        npus_per_node=2,
        scenario=Scenario.LONG_CONTEXT,
        max_model_len=262144,
        concurrency=128,
    ),
    "3.6-35B, high throughput": Wish(
        model="Qwen3.6-35B-A3B",
        hardware="A3",
        weights="w8a8",
        image="v0.22.1rc1-a3",
        npus_per_node=8,
        scenario=Scenario.HIGH_THROUGHPUT,
        max_model_len=65536,
        concurrency=128,
    ),
    "3.6-35B, low latency": Wish(
        model="Qwen3.6-35B-A3B",
        hardware="A3",
        weights="w8a8",
        image="v0.22.1rc1-a3",
        scenario=Scenario.LOW_LATENCY,
        max_model_len=32768,
        concurrency=16,
    ),
    "32B with TP 4": Wish(
        model="Qwen3-32B",
        hardware="A3",
        weights="w8a8",
        image="0.11.0",
        npus_per_node=8,
        tensor_parallel_size=4,
        data_parallel_size=1,
        concurrency=32,
    ),
    "32B with TP 8 and eagle3": Wish(
        model="Qwen3-32B",
        hardware="A3",
        weights="bf16",
        image="0.18.0",
        npus_per_node=8,
        scenario=Scenario.LOW_LATENCY,
        speculation="eagle3",
        max_model_len=23000,
        concurrency=32,
    ),
}
"""The deployments of the guides, as their reader would ask for them."""


def strategies() -> dict[str, st.SearchStrategy[Any]]:
    """Values of each field, possible and impossible ones."""
    sizes = st.sampled_from(SIZES)
    return {
        "model": st.sampled_from([*MODELS, "Qwen/Qwen3-32B", "/weights/Qwen3.5-35B-A3B-w8a8", "Llama-3"]),
        "hardware": st.sampled_from([*CHIPS, "atlas-800-a3", "H200"]),
        "weights": st.sampled_from([None, None, "w8a8-mtp", *VARIANTS]),
        "scenario": st.sampled_from(Scenario),
        "image": st.sampled_from([None, None, *RELEASES, "0.12.0", "0.27.0", "latest", "v0.23.0-310p"]),
        "topology": st.sampled_from([None, None, *Topology]),
        "nodes": sizes,
        "npus_per_node": sizes,
        "npu_memory_gib": st.sampled_from([None, None, None, 32.0, 64.0, 96.0, 0.5]),
        "prefill_nodes": sizes,
        "decode_nodes": sizes,
        "num_prefill": sizes,
        "num_decode": sizes,
        "tensor_parallel_size": sizes,
        "data_parallel_size": sizes,
        "decode_tensor_parallel_size": sizes,
        "decode_data_parallel_size": sizes,
        "expert_parallel": st.sampled_from([None, None, True, False]),
        "max_model_len": st.sampled_from([None, None, 1, 500, 8192, 40960, 133000, 300000, 10**9]),
        "concurrency": st.sampled_from([None, 1, 7, 64, 1000, 10**7]),
        "max_num_batched_tokens": st.sampled_from([None, None, None, 1, 512, 4096, 200000]),
        "gpu_memory_utilization": st.sampled_from([None, None, 0.0, 0.05, 0.7, 0.95, 1.5, -1.0]),
        "speculation": st.sampled_from(["auto", "auto", "off", "mtp", "eagle3"]),
        "num_speculative_tokens": st.sampled_from([None, None, None, 0, 1, 2, 3, 5, 7, 99]),
        "draft_model": st.sampled_from([None, None, None, "me/draft"]),
        "prefix_caching": st.sampled_from([None, True, False]),
        "language_model_only": st.booleans(),
        "connector": st.sampled_from([None, None, *KNOWLEDGE.connectors.entries, "Telegraph"]),
        "proxy": st.sampled_from(["qanat", "example"]),
        "model_path": st.sampled_from([None, None, "/models/it's here", "relative"]),
        "served_model_name": st.sampled_from([None, "name with 'quotes'"]),
        "addresses": st.sampled_from([(), (), ("192.0.2.1",), ("192.0.2.1", "192.0.2.2")]),
        "interface": st.sampled_from([None, "eth0"]),
        "port": st.sampled_from([None, None, 8000, 13389, 36100, 0, 70000]),
        "proxy_port": st.sampled_from([None, None, 8000, 8100, 36110]),
        "overrides": st.sampled_from(
            [
                {},
                {},
                {},
                {"max-num-seqs": 8},
                {"max-num-seqs": "many"},
                {"compilation-config.cudagraph_mode": "PIECEWISE"},
                {"compilation-config": {"cudagraph_mode": "FULL"}},
                {"enforce-eager": True},
                {"additional-config.enable_flashcomm1": True},
                {"tensor-parallel-size": 2},
                {"no-such-flag": 1},
                {"headless": True},
                {"hf-overrides": "{"},
                {"cudagraph-capture-sizes": [4, 8]},
                {"compilation-config.cudagraph_capture_sizes": []},
                {"host": "127.0.0.1"},
                {"no-enable-prefix-caching": True},
                {"hf-overrides.rope_parameters.factor": 4.0},
                {"": 1},
                {"a.b.c": 1, "a": 2},
            ]
        ),
    }


def any_wishes() -> st.SearchStrategy[Wish]:
    """Wishes with values for every field, most of them impossible for one reason or another."""
    return st.builds(Wish, **strategies())


@st.composite
def few_wishes(draw: st.DrawFn) -> Wish:
    """Wishes that state little, so that most of them are possible."""
    values = strategies()
    fields = {
        "model": draw(st.sampled_from(MODELS)),
        "hardware": draw(st.sampled_from(CHIPS)),
        "scenario": draw(st.sampled_from(Scenario)),
    }
    names = draw(st.lists(st.sampled_from(sorted(set(values) - set(fields))), max_size=3, unique=True))
    return Wish(**fields, **{name: draw(values[name]) for name in names})
