"""Numbers outside their bounds and names that vLLM does not know: each alone ends the start."""

from __future__ import annotations

import pytest

from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.lint.engine import lint
from qanat.deploy.sources.documents import read_document

SERVE = (
    "vllm serve /data/Qwen3.6-35B-A3B-w8a8 --enable-expert-parallel --no-enable-prefix-caching "
    "--language-model-only --max-model-len 8192"
)


def errors(flags: str, image: str = "v0.23.0-a3") -> list[tuple[str, str]]:
    found = lint([read_document("start.sh", f"#!/bin/bash\n{SERVE} {flags}\n")], image)
    return [(one.rule_id, f"{one.message} {one.fix.text}") for one in found if one.severity is Severity.ERROR]


@pytest.mark.parametrize(
    "flags",
    [
        "--port 70000",
        "--port 0",
        "-tp 0",
        "--data-parallel-size 0",
        "--max-num-seqs 0",
        "--max-num-batched-tokens 0",
        "--max-model-len -5",
        "--max-model-len 0",
        "--api-server-count -3",
        "--cudagraph-capture-sizes 8 -4",
        "-O9",
    ],
)
def test_numbers_outside_their_bounds_are_refused(flags: str) -> None:
    assert [rule for rule, _ in errors(flags)] == ["CLI018"]


@pytest.mark.parametrize(
    "flags",
    [
        "--port 65535",
        "--max-model-len auto",
        "--max-model-len -1",
        "-O2",
        "--api-server-count 4",
        "--port $PORT",
    ],
)
def test_numbers_inside_are_taken(flags: str) -> None:
    assert errors(flags) == []


@pytest.mark.parametrize(
    ("flags", "rule", "nearest"),
    [
        ("--quantization ascnd", "CLI018", "ascend"),
        ("--quantization awq", "CLI028", "ascend"),
        ("--quantization fp8", "CLI028", "ascend"),
        ("--reasoning-parser qwen3.5", "CLI018", "qwen3"),
        ("--reasoning-parser qwen", "CLI018", "qwen3"),
        ("--enable-auto-tool-choice --tool-call-parser qwen3coder", "CLI018", "qwen3_coder"),
        ('--speculative-config \'{"method": "mpt", "num_speculative_tokens": 3}\'', "CLI027", "mtp"),
        (
            '--speculative-config \'{"method": "qwen3_6_mtp", "num_speculative_tokens": 3}\'',
            "CLI027",
            "qwen3_5_mtp",
        ),
        ("--distributed-executor-backend mpi", "CLI018", "mp"),
        ("--load-format foo", "CLI018", "auto"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(flags: str, rule: str, nearest: str) -> None:
    (found,) = errors(flags)
    assert found[0] == rule
    assert nearest in found[1]


@pytest.mark.parametrize(
    "flags",
    [
        "--reasoning-parser mine --reasoning-parser-plugin mine.py",
        "--distributed-executor-backend my.executor.Executor",
        "--quantization ASCEND",
        "--load-format dummy",
    ],
)
def test_names_of_plugins_and_classes_are_taken(flags: str) -> None:
    assert errors(flags) == []


def test_names_of_later_releases_are_not_judged() -> None:
    assert errors("--reasoning-parser qwen9", "v0.30.0rc2-a3") == []


@pytest.mark.parametrize(
    ("flags", "rule"),
    [
        (
            '--kv-transfer-config \'{"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_prefill"}\'',
            "CLI027",
        ),
        ('--speculative-config \'{"method": "mtp", "num_speculative_tokens": 0}\'', "CLI027"),
        ("--additional-config '[]'", "CLI019"),
        ("--compilation-config '{\"cudagraph_capture_sizes\": [0, -4, 8]}'", "CLI027"),
        ('--compilation-config \'{"cudagraph_capture_sizes": ["x"]}\'', "CLI027"),
        ("--compilation-config '{\"cudagraph_capture_sizes\": []}'", "GRA004"),
    ],
)
def test_values_in_json_that_end_the_start_are_errors(flags: str, rule: str) -> None:
    assert rule in {found for found, _ in errors(flags)}
