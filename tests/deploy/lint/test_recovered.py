"""The sections that the 397B guide lost, put together from their data: nothing in them is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.lint.engine import lint
from qanat.deploy.sources.documents import read_document

DATA = (
    Path(__file__).resolve().parents[3].parent / "shared/reference/vllm_ascend/recovered_397b_sections.yaml"
)
IMAGE = "v0.23.0"

pytestmark = pytest.mark.skipif(
    not DATA.is_file(), reason="the recovered sections are not beside the checkout"
)


def script(model: str, env: dict[str, Any], flags: dict[str, Any]) -> str:
    lines = [f'export {name}="{value}"' for name, value in env.items()]
    words = [f"vllm serve {model}"]
    for name, value in flags.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, dict):
            words.append(f"--{name} '{json.dumps(value)}'")
        else:
            words.append(f"--{name} '{value}'")
    return "\n".join([*lines, " \\\n  ".join(words)]) + "\n"


def test_both_nodes_of_section_5_2() -> None:
    section = yaml.safe_load(DATA.read_text(encoding="utf-8"))["section_5_2_multinode_mp"]
    documents = []
    for node in ("node0_only", "node1_only"):
        text = script(
            section["target"]["model"], section["common_env"], section["common_flags"] | section[node]
        )
        documents.append(read_document(f"{node}.sh", text))
    raised = [one for one in lint(documents, IMAGE) if one.severity is not Severity.INFO]
    assert [(one.rule_id, one.message) for one in raised] == []
    assert [document.launches[0].role for document in documents] == ["head", "worker"]


def test_every_row_of_section_9_1_with_the_contradictions_it_names() -> None:
    rows = yaml.safe_load(DATA.read_text(encoding="utf-8"))["section_9_1"]
    found = {}
    for row in rows:
        if "max_num_seqs" not in row:
            continue
        options = {"enable_cpu_binding": True}
        flags: dict[str, Any] = {
            "tensor-parallel-size": row["tp"],
            "enable-expert-parallel": True,
            "max-num-seqs": int(str(row["max_num_seqs"]).split()[0]),
            "max-model-len": row["max_model_len"],
            "max-num-batched-tokens": row["max_num_batched_tokens"],
            "enable-prefix-caching": row["prefix_cache"],
            "speculative-config": {"method": "qwen3_5_mtp", "num_speculative_tokens": row["mtp"]},
        }
        if "full graph" in row["options"]:
            flags["compilation-config"] = {"cudagraph_mode": "FULL_DECODE_ONLY"}
        if "recompute scheduler" in row["options"]:
            options["recompute_scheduler_enable"] = True
            role = "kv_producer" if "prefill" in row["scenario"] else "kv_consumer"
            flags["kv-transfer-config"] = {
                "kv_connector": "MooncakeConnectorV1",
                "kv_role": role,
                "kv_port": 36010,
            }
            flags["disable-hybrid-kv-cache-manager"] = False
        flags["additional-config"] = options
        text = script("Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp", {}, flags)
        raised = [
            one for one in lint([read_document("row.sh", text)], IMAGE) if one.severity is not Severity.INFO
        ]
        found[row["scenario"]] = [one.rule_id for one in raised]
    # The section itself lists the recompute scheduler for the prefill node, against the section before it.
    assert found == {
        "long context": [],
        "high throughput": [],
        "low latency prefill": ["PD008"],
        "low latency decode": [],
    }
