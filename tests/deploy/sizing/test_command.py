"""The memory that `qanat deploy plan` prints is the one that its own flags lead to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qanat.cli.main import main
from qanat.deploy.sizing.budget import memory_of, visible_bytes
from qanat.deploy.sizing.communicators import uses_mc2
from qanat.deploy.sizing.layout import Layout
from tests.deploy.sizing.cases import CHIPS, MODELS, drafter_of

WISHES = {
    "397B on A3": ["--model", "Qwen3.5-397B-A17B", "--weights", "w8a8-mtp", "--hardware", "A3"],
    "397B on 950DT": ["--model", "Qwen3.5-397B-A17B", "--weights", "w4a4-mxfp4", "--hardware", "950DT"],
    "397B on A2 nodes": [
        "--model",
        "Qwen3.5-397B-A17B",
        "--weights",
        "w8a8",
        "--hardware",
        "A2",
        "--nodes",
        "2",
    ],
    "35B without vision": ["--model", "Qwen3.6-35B-A3B", "--hardware", "A3", "--language-model-only"],
    "27B on small NPUs": [
        "--model",
        "Qwen3.5-27B",
        "--weights",
        "w8a8",
        "--hardware",
        "A2",
        "--npu-memory-gib",
        "32",
    ],
    "32B": ["--model", "Qwen3-32B", "--weights", "bf16", "--hardware", "A3", "--max-model-len", "32768"],
}


def planned(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["deploy", "plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", WISHES)
def test_memory_of_a_plan_follows_from_its_flags(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(WISHES[name], capsys)
    for role in plan["roles"]:
        flags = role["flags"]
        model = MODELS[plan["model"]]
        k = flags.get("speculative-config", {}).get("num_speculative_tokens", 0)
        layout = Layout(
            model=model,
            variant=plan["weights"],
            npu_bytes=visible_bytes(CHIPS[plan["chip"]], plan["wish"]["npu_memory_gib"]),
            tp=flags["tensor-parallel-size"],
            dp=flags["data-parallel-size"],
            expert_parallel=flags.get("enable-expert-parallel", False),
            drafter=drafter_of(model, k),
            num_speculative_tokens=k,
            max_model_len=flags["max-model-len"],
            max_num_seqs=flags["max-num-seqs"],
            max_num_batched_tokens=flags["max-num-batched-tokens"],
            gpu_memory_utilization=flags["gpu-memory-utilization"],
            prefix_caching=flags["enable-prefix-caching"],
            capture_sizes=tuple(role["capture_sizes"]),
            hccl_buffer_mib=int(role["env"].get("HCCL_BUFFSIZE", 200)),
            is_mc2=uses_mc2(
                CHIPS[plan["chip"]], model, flags["tensor-parallel-size"] * flags["data-parallel-size"]
            ),
            language_model_only=plan["wish"]["language_model_only"],
        )
        memory = memory_of(layout)
        assert role["memory"]["pool_bytes"] == memory.pool_bytes
        assert role["memory"]["needed_pool_bytes"] == memory.needed_pool_bytes
        assert {item["name"]: item["size_bytes"] for item in role["memory"]["items"]} == {
            item.name: item.size_bytes for item in memory.items
        }


def test_the_table_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "plan", *WISHES["397B on A3"]]) == 0
    printed = capsys.readouterr().out
    assert "Memory of one NPU: 61.0 GiB" in printed
    for part in (
        "weights",
        "activations",
        "communication",
        "runtime",
        "cache",
        "graphs",
        "fragments",
        "uneven experts",
    ):
        assert f"\n  {part}" in printed
