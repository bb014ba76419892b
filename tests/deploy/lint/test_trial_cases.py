"""Open trial cases of operation that a linter answers."""

from __future__ import annotations

import itertools

import pytest

from qanat.deploy.knowledge.model import Severity
from qanat.deploy.lint.engine import lint
from qanat.deploy.lint.finding import Finding
from qanat.deploy.sizing.capture import max_num_graphs, thin_out
from qanat.deploy.sources.documents import read_document

MOE = "vllm serve Qwen/Qwen3-235B-A22B -tp 16 --enable-expert-parallel"
DENSE = "vllm serve Qwen/Qwen3-32B -tp 8"
HYBRID = "vllm serve Qwen/Qwen3.5-35B-A3B -tp 8 --enable-expert-parallel --no-enable-prefix-caching"
FULL = '"cudagraph_mode": "FULL_DECODE_ONLY"'


def check(text: str, image: str = "v0.23.0") -> list[Finding]:
    return lint([read_document("start.sh", text)], image)


def grave(text: str, image: str = "v0.23.0") -> set[str]:
    return {one.rule_id for one in check(text, image) if one.severity is not Severity.INFO}


@pytest.mark.parametrize(("num_drafts", "rounded"), [(0, False), (1, False), (3, True)])
def test_ops_002_sizes_that_are_no_rows_times_one_plus_k_are_named(num_drafts: int, rounded: bool) -> None:
    speculation = (
        f'--speculative-config \'{{"method": "qwen3_5_mtp", "num_speculative_tokens": {num_drafts}}}\''
    )
    sizes = f"--compilation-config '{{{FULL}, \"cudagraph_capture_sizes\": [2, 4, 6, 8, 10]}}'"
    text = f"{HYBRID} --max-num-seqs 12 {sizes} {speculation if num_drafts else ''}"
    found = {one.rule_id: one for one in check(text)}
    assert ("GRA003" in found) is rounded
    assert "GRA005" in found
    largest = 8 if num_drafts == 3 else 10
    assert (
        f"the sizes end at {largest}, enough for {largest // (1 + num_drafts)} sequences"
        in found["GRA005"].message
    )


PORTS = {
    "--port": "--port {}",
    "--data-parallel-rpc-port": "--data-parallel-rpc-port {}",
    "--master-port": "--master-port {}",
    "kv_port": (
        "--kv-transfer-config "
        '\'{{"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_both", "kv_port": {}}}\''
    ),
}


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(PORTS, 2)))
def test_ops_006_every_pair_of_ports_is_compared_and_both_are_named(first: str, second: str) -> None:
    text = f"{DENSE} {PORTS[first].format(8000)} {PORTS[second].format(8000)}"
    (finding,) = [one for one in check(text) if one.rule_id == "PORT001"]
    assert first in finding.message and second in finding.message
    assert "PORT001" not in grave(f"{DENSE} {PORTS[first].format(8000)} {PORTS[second].format(9000)}")


def test_ops_006_ranges_count() -> None:
    text = f"{DENSE} --port 36104 {PORTS['kv_port'].format(36100)}"
    assert "PORT001" in grave(text)


def test_ops_012_more_sizes_than_streams_are_found_before_the_start() -> None:
    sizes = ", ".join(str(8 * number) for number in range(1, 36))
    text = f'{MOE} --compilation-config \'{{"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": [{sizes}]}}\''
    (finding,) = [one for one in check(text, "v0.18.0") if one.rule_id == "GRA008"]
    assert "94 layers" in finding.message


@pytest.mark.parametrize("is_aiv", [False, True])
@pytest.mark.parametrize(("num_layers", "num_drafts"), [(64, 0), (94, 0), (94, 1), (40, 1), (60, 1), (28, 0)])
def test_ops_012_the_proposed_list_fits_and_keeps_both_ends(
    num_layers: int, num_drafts: int, is_aiv: bool
) -> None:
    num = max(2, max_num_graphs(num_layers, num_drafts, 2, True, False, is_aiv))
    sizes = thin_out((1, 2, 4, *range(8, 513, 8)), num)
    assert len(sizes) <= num
    assert (sizes[0], sizes[-1]) == (1, 512)


def test_ops_012_the_known_list_of_nine() -> None:
    assert max_num_graphs(64, 0, 1, False, False, False) == 9


BAD_PAIRS = {
    "graph sizes with eager": f"{DENSE} --enforce-eager --compilation-config '{{{FULL}}}'",
    "experts without experts": f"{DENSE} --enable-expert-parallel",
    "parallelism that does not divide the heads": "vllm serve Qwen/Qwen3-32B -tp 12",
    "no chunks and short steps": (
        f"{DENSE} --no-enable-chunked-prefill --max-model-len 8192 --max-num-batched-tokens 4096"
    ),
    "blocks larger than steps": (
        "vllm serve Qwen/Qwen3.5-35B-A3B -tp 2 --enable-prefix-caching --max-num-batched-tokens 1024"
    ),
    "ray and asynchronous": f"{DENSE} --distributed-executor-backend ray --async-scheduling",
    "ngram and asynchronous": (
        f'{DENSE} --async-scheduling --speculative-config \'{{"method": "ngram", "num_speculative_tokens": 3}}\''
    ),
    "headless with API servers": f"{DENSE} --headless --api-server-count 2 --data-parallel-start-rank 1",
    "fused MC2 with overlap": (
        f'{HYBRID} --additional-config \'{{"enable_fused_mc2": 1, "multistream_overlap_shared_expert": true}}\''
    ),
    "level 2 queue with graphs": f"export TASK_QUEUE_ENABLE=2\n{DENSE}",
    "FlashComm1 without experts spread": (
        "vllm serve Qwen/Qwen3.5-35B-A3B -tp 8 --additional-config '{\"enable_flashcomm1\": true}'"
    ),
    "recompute without a connector": f"{HYBRID} --additional-config '{{\"recompute_scheduler_enable\": true}}'",
}
GOOD_PAIRS = [
    f"{DENSE} --enforce-eager",
    f"{DENSE} --compilation-config '{{{FULL}}}'",
    "vllm serve Qwen/Qwen3-32B -tp 4",
    HYBRID,
    f"{DENSE} --max-model-len 8192 --max-num-batched-tokens 4096",
    "vllm serve Qwen/Qwen3.5-35B-A3B -tp 2 --enable-prefix-caching --max-num-batched-tokens 2048",
    f"{DENSE} --distributed-executor-backend mp --async-scheduling",
    f'{HYBRID} --async-scheduling --speculative-config \'{{"method": "qwen3_5_mtp", "num_speculative_tokens": 3}}\'',
    f"{HYBRID} --additional-config '{{\"enable_fused_mc2\": 1}}'",
    f"{HYBRID} --additional-config '{{\"multistream_overlap_shared_expert\": true}}'",
    f"export TASK_QUEUE_ENABLE=1\n{DENSE}",
    f"{HYBRID} --additional-config '{{\"enable_flashcomm1\": true}}'",
]


@pytest.mark.parametrize("name", BAD_PAIRS)
def test_ops_017_pairs_that_contradict_are_found_with_a_source(name: str) -> None:
    found = [one for one in check(BAD_PAIRS[name]) if one.severity is not Severity.INFO]
    assert found and all(one.source for one in found)


@pytest.mark.parametrize("text", GOOD_PAIRS)
def test_ops_017_pairs_that_go_together_are_left_alone(text: str) -> None:
    assert grave(text) == set()


@pytest.mark.parametrize(
    "variables",
    ["HCCL_SOCKET_IFNAME=lo", "HCCL_IF_IP=127.0.0.1", "HCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth1"],
)
def test_ops_018_loopback_and_interfaces_that_disagree(variables: str) -> None:
    nodes = "--data-parallel-size 2 --data-parallel-size-local 1 --data-parallel-address 10.0.0.1"
    assert "ENV017" in grave(f"export {variables}\n{HYBRID} {nodes}")
    assert "ENV017" not in grave(f"export HCCL_SOCKET_IFNAME=eth0\n{HYBRID} {nodes}")


def test_ops_018_nodes_that_do_not_agree_on_their_interfaces() -> None:
    def node(start: int, variables: str) -> str:
        rank = f"--headless --data-parallel-start-rank {start}" if start else ""
        flags = "--data-parallel-size 2 --data-parallel-size-local 1 --data-parallel-address 10.0.0.1"
        return f"export {variables}\n{HYBRID} {flags} {rank}\n"

    def found(first: str, second: str) -> set[str]:
        documents = [read_document("0.sh", node(0, first)), read_document("1.sh", node(1, second))]
        return {one.message.split()[0] for one in lint(documents, "v0.23.0") if one.rule_id == "TOP008"}

    assert found("HCCL_IF_IP=10.0.0.1", "HCCL_IF_IP=10.0.0.2") == set()
    assert found("HCCL_IF_IP=10.0.0.1 HCCL_SOCKET_IFNAME=eth0", "HCCL_IF_IP=10.0.0.2") == {
        "HCCL_SOCKET_IFNAME"
    }
    assert found("HCCL_CONNECT_TIMEOUT=600", "HCCL_CONNECT_TIMEOUT=1800") == {"HCCL_CONNECT_TIMEOUT"}


ROPE = '{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40960}'


@pytest.mark.parametrize(
    ("overrides", "rule", "advice"),
    [
        (ROPE.replace("rope_type", "type"), "MOD005", "rope_type"),
        (ROPE.replace("factor", "factr"), "MOD005", "factor"),
        (ROPE.replace("original_max", "orginal_max"), "MOD005", "original_max_position_embeddings"),
    ],
)
@pytest.mark.parametrize("name", ["rope_parameters", "rope_scaling"])
def test_ops_011_misspelt_rope_settings_are_told_the_right_one(
    name: str, overrides: str, rule: str, advice: str
) -> None:
    found = check(f"{DENSE} --max-model-len 8192 --hf-overrides '{{\"{name}\": {overrides}}}'")
    (finding,) = [one for one in found if one.rule_id == rule]
    assert advice in finding.fix.text


def test_ops_011_a_misplaced_or_misnamed_override() -> None:
    assert "MOD004" in grave(f"{HYBRID} --hf-overrides '{{\"rope_parameters\": {ROPE}}}'")
    assert "MOD004" not in grave(
        f'{HYBRID} --hf-overrides \'{{"text_config": {{"rope_parameters": {ROPE}}}}}\''
    )
    assert "MOD005" in grave(f"{DENSE} --hf-overrides '{{\"rope_params\": {ROPE}}}'")
    assert "CLI009" in grave(f"{DENSE} --rope-scaling '{ROPE}'")


@pytest.mark.parametrize(
    ("window", "is_refused"), [(40960, False), (131072, False), (163840, False), (163841, True)]
)
def test_ops_011_a_window_beyond_what_the_factor_gives(window: int, is_refused: bool) -> None:
    text = f"{DENSE} --max-model-len {window} --hf-overrides '{{\"rope_parameters\": {ROPE}}}'"
    assert ("MOD002" in grave(text)) is is_refused
    assert ("MOD002" in grave(f"{DENSE} --max-model-len {window}")) is (window > 40960)
