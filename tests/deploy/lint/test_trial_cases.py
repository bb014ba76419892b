"""Open trial cases of operation that a linter answers."""

from __future__ import annotations

import itertools
import re

import pytest

from qanat.deploy.knowledge.kinds.rules import Severity
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


SLOTS = (
    "# Atlas 800 A2, 64 GB\nvllm serve Qwen/Qwen3.5-35B-A3B -tp 2 --max-model-len 8192 --no-enable-prefix-caching "
    f"--gpu-memory-utilization {{share}} --compilation-config '{{{{{FULL}}}}}' {{more}}"
)
HBM = 65452113920
"""Bytes that an engine sees of a 64 GB NPU."""
BLOCK_BYTES = 10 * (2 * 2048 * 256 * 2 + 3 * (2 * 8 * 128 + 16 * 128) * 2)
"""A pool block of the 35B model at TP2: ten layers, each with 2048 keys and values of one head, and the convolution."""


def blocks_told(text: str, image: str = "v0.23.0") -> dict[str, int]:
    """The number of cache blocks that a finding names, by rule."""
    found = {one.rule_id: one.message for one in check(text, image)}
    return {
        rule: int(match.group(1))
        for rule in ("HYB011", "HYB012")
        if rule in found and (match := re.search(r"the cache has about (\d+) blocks", found[rule]))
    }


@pytest.mark.parametrize("more", ["--max-num-seqs 256", ""])
def test_ops_001_more_sequences_than_state_slots_are_named_with_both_numbers(more: str) -> None:
    text = SLOTS.format(share=0.592, more=more)
    (finding,) = [one for one in check(text) if one.rule_id == "HYB011"]
    slots = blocks_told(text)["HYB011"]
    assert 20 <= slots <= 40
    assert f"is 256, the cache has about {slots} blocks: {slots} is the largest value" in finding.message
    assert ("by default" in finding.message) is (not more)
    assert "HYB011" not in grave(SLOTS.format(share=0.592, more="--enforce-eager"))
    assert "HYB011" not in grave(text.replace("# Atlas 800 A2, 64 GB", "# somewhere"))


def test_ops_001_each_share_of_memory_adds_the_blocks_that_fit_into_it() -> None:
    shares = (0.60, 0.62, 0.64)
    told = [blocks_told(SLOTS.format(share=share, more="--max-num-seqs 1024"))["HYB011"] for share in shares]
    expected = HBM * 0.02 / BLOCK_BYTES
    for fewer, more in itertools.pairwise(told):
        assert more - fewer == pytest.approx(expected, rel=0.05)


def test_ops_001_before_the_check_graphs_were_cut_without_a_word() -> None:
    text = SLOTS.format(share=0.592, more="--max-num-seqs 256")
    assert set(blocks_told(text, "v0.18.0")) == {"HYB012"}
    assert set(blocks_told(text, "v0.20.2rc1")) == {"HYB011"}
    assert not blocks_told(SLOTS.format(share=0.9, more="--max-num-seqs 64"), "v0.18.0")


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


@pytest.mark.parametrize(
    ("first", "second", "is_found"),
    [
        ("", "", True),
        ("--port 8001", "", False),
        ("--port 8001", "--port 8001", True),
        (
            f"--port 8001 {PORTS['kv_port'].format(36100)}",
            f"--port 8002 {PORTS['kv_port'].format(36104)}",
            True,
        ),
        (
            f"--port 8001 {PORTS['kv_port'].format(36100)}",
            f"--port 8002 {PORTS['kv_port'].format(36200)}",
            False,
        ),
        (f"--port 8001 {PORTS['kv_port'].format(36100)}", "--port 36103", True),
    ],
)
def test_ops_006_servers_of_one_host(first: str, second: str, is_found: bool) -> None:
    text = (
        f"ASCEND_RT_VISIBLE_DEVICES=0-7 {DENSE} {first} &\n"
        f"ASCEND_RT_VISIBLE_DEVICES=8-15 {DENSE} {second} &\n"
    )
    assert ("PORT003" in grave(text)) is is_found
    assert "PORT003" not in grave(text.replace(" &\n", "\n"))


def test_ops_006_nodes_of_one_group_share_their_control_port() -> None:
    group = "--data-parallel-size 2 --data-parallel-size-local 1 --data-parallel-address 10.0.0.1"
    rpc = "--data-parallel-rpc-port 13389"
    text = (
        f"ASCEND_RT_VISIBLE_DEVICES=0-7 {HYBRID} {group} {rpc} &\n"
        f"ASCEND_RT_VISIBLE_DEVICES=8-15 {HYBRID} {group} {rpc} --headless --data-parallel-start-rank 1 &\n"
    )
    assert "PORT003" not in grave(text)


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


EAGLE = '--speculative-config \'{"method": "eagle3", "model": "a", "num_speculative_tokens": 2}\''
MTP_2 = '--speculative-config \'{"method": "qwen3_5_mtp", "num_speculative_tokens": 2}\''
PIECEWISE = '--compilation-config \'{"cudagraph_mode": "PIECEWISE"}\''
REPORTED = {
    "235B TP16 with experts and a drafter": (f"{MOE} {EAGLE} {PIECEWISE}", 94, 1, 2, 512),
    "4B TP8": ("vllm serve Qwen/Qwen3-4B -tp 8", 36, 0, 1, 256),
    "9B TP4 with MTP": (f"vllm serve Qwen/Qwen3.5-9B -tp 4 {MTP_2}", 32, 1, 1, 512),
    "235B DP2 TP8 with experts": (
        "vllm serve Qwen/Qwen3-235B-A22B -tp 8 -dp 2 --enable-expert-parallel --max-num-seqs 100",
        94,
        0,
        3,
        100,
    ),
    "32B TP8": (DENSE, 64, 0, 1, 256),
    "397B TP16 with experts and MTP": (
        f"vllm serve Qwen/Qwen3.5-397B-A17B -tp 16 --enable-expert-parallel --max-num-seqs 30 {MTP_2}",
        60,
        1,
        2,
        90,
    ),
}
"""Each with its layers, those of the drafter, groups of communication, and the largest decode batch."""
SIMULATED_STREAMS = 1900


def is_captured(num_sizes: int, layers: int, drafts: int, groups: int) -> bool:
    """An allocator that hands out a stream for each piece of each graph, and more for every group."""
    free = SIMULATED_STREAMS - 40 * groups
    for _ in range(num_sizes):
        for _ in range(layers + 1 + (drafts + 1 if drafts else 0)):
            free -= 1 + 2 * groups
    return free >= 0


@pytest.mark.parametrize("name", REPORTED)
@pytest.mark.parametrize(("image", "driver"), [("v0.18.0", ""), ("v0.23.0", "# HDK 25.2.1\n")])
def test_ops_012_reported_layouts_are_found_with_a_list_that_fits(name: str, image: str, driver: str) -> None:
    command, layers, drafts, groups, largest = REPORTED[name]
    if driver and "cudagraph_mode" not in command:
        command += f" {PIECEWISE}"
    found = [one for one in check(driver + command, image) if one.rule_id in ("GRA011", "GRA018")]
    assert found
    for one in found:
        sizes = [int(size) for size in re.findall(r"\d+(?=,|;| or)", one.fix.text.split("such as ")[1])]
        assert is_captured(len(sizes), layers, drafts, groups)
        assert min(sizes) == 1 and max(sizes) == largest
        assert len(sizes) < 35


@pytest.mark.parametrize("mode", ["FULL_DECODE_ONLY", "FULL"])
def test_ops_012_whole_graphs_take_few_streams(mode: str) -> None:
    text = f'# HDK 25.2.1\n{MOE} --compilation-config \'{{"cudagraph_mode": "{mode}"}}\''
    for image in ("v0.18.0", "v0.23.0"):
        assert not {one.rule_id for one in check(text, image)} & {"GRA008", "GRA011", "GRA018", "GRA019"}


def test_ops_012_a_drafter_that_runs_eagerly_captures_nothing() -> None:
    eager = MTP_2.replace("}", ', "enforce_eager": true}')
    command = "# HDK 25.2.1\nvllm serve Qwen/Qwen3.5-9B -tp 4 "
    assert "GRA011" in grave(command + MTP_2, "v0.18.0")
    assert "GRA011" not in grave(command + eager, "v0.18.0")


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


@pytest.mark.parametrize(
    ("text", "rule", "bad", "good"),
    [
        (f"{HYBRID} --language-model-only {{mtp}}", "SPC003", "v0.17.0rc1", "v0.18.0"),
        ("vllm serve Qwen/Qwen3.5-27B -tp 4 --enable-prefix-caching", "HYB015", "v0.19.1rc1", "v0.20.2rc1"),
    ],
)
def test_ops_017_pairs_that_were_bad_once_are_told_for_those_releases(
    text: str, rule: str, bad: str, good: str
) -> None:
    mtp = '--speculative-config \'{"method": "qwen3_5_mtp", "num_speculative_tokens": 3}\''
    command = text.replace("{mtp}", mtp)
    assert rule in grave(command, bad) and rule not in grave(command, good)
    assert rule not in grave(f"# qanat: ignore[{rule}]\n{command}", bad)


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
