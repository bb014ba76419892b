"""Folders of plans that the planner makes: models, chips, topologies, scenarios and releases in many pairs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.planner import plan
from qanat.deploy.plan.wish import Scenario, Topology, Wish
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import RenderOptions
from qanat.deploy.render.readme_texts import all_sentences
from tests.deploy.render.test_checks import SHELLCHECK
from tests.deploy.render.test_linted import described, grave
from tests.deploy.render.test_readme import commands

PAIR = {"topology": Topology.DISAGGREGATED}
WISHES: list[dict[str, Any]] = [
    {
        "model": "Qwen3.5-397B-A17B",
        "hardware": "A3",
        "scenario": Scenario.LOW_LATENCY,
        "max_model_len": 133000,
    },
    {
        "model": "Qwen3.5-397B-A17B",
        "hardware": "A3",
        "weights": "w8a8-mtp",
        "scenario": Scenario.HIGH_THROUGHPUT,
    },
    {"model": "Qwen3.5-397B-A17B", "hardware": "A2", "nodes": 2, "topology": Topology.MULTI_NODE},
    {"model": "Qwen3.5-397B-A17B", "hardware": "A3", **PAIR},
    {"model": "Qwen3.5-397B-A17B", "hardware": "950DT", **PAIR},
    {"model": "Qwen3.5-397B-A17B", "hardware": "A3", "num_prefill": 2, "num_decode": 2, **PAIR},
    {"model": "Qwen3.5-122B-A10B", "hardware": "A3", "scenario": Scenario.LONG_CONTEXT},
    {"model": "Qwen3.6-35B-A3B", "hardware": "A3", "model_path": "/data/weights/Qwen3.6 35B"},
    {"model": "Qwen3.5-27B", "hardware": "A2", "image": "0.18.0"},
    {"model": "Qwen3.5-27B", "hardware": "A3", "nodes": 2, "topology": Topology.RAY},
    {"model": "Qwen3-32B", "hardware": "A2", "image": "0.11.0"},
    {"model": "Qwen3-32B", "hardware": "310P"},
    {"model": "Qwen3-32B", "hardware": "A3", "served_model_name": 'it\'s "$HOME" `x`'},
    {"model": "Qwen3-8B", "hardware": "A2", "image": "0.26.0rc1", "concurrency": 1},
]


SLOW = ("num_prefill", "concurrency")
"""What is planned elsewhere in small: wishes with one of these are for the slow suite."""
CASES = [
    pytest.param(
        wish,
        id="-".join(str(one) for one in wish.values())[:70],
        marks=[pytest.mark.slow] if any(key in wish for key in SLOW) else [],
    )
    for wish in WISHES
]


@pytest.mark.parametrize("wish", CASES)
def test_a_planned_folder_is_clean(wish: dict[str, Any], tmp_path: Path) -> None:
    planned = plan(Wish(**wish), load_knowledge())
    files = render(planned, RenderOptions())
    assert described(grave(files)) == []
    english, chinese = (
        files["README.md"].text,
        render(planned, RenderOptions(language="zh"))["README.md"].text,
    )
    assert commands(english) == commands(chinese)
    scripts = []
    for name, file in files.items():
        if name.endswith(".yaml"):
            assert all(isinstance(one, dict) for one in yaml.safe_load_all(file.text))
        elif name.startswith("checks/") and name.endswith(".sh"):
            scripts.append(tmp_path / name.replace("/", "-"))
            scripts[-1].write_text(file.text, encoding="utf-8")
    assert SHELLCHECK is not None
    command = [SHELLCHECK, "--severity=warning", *map(str, scripts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert len(scripts) == 3 and done.returncode == 0, done.stdout
    for item in (item for role in planned.roles for item in role.memory.items):
        assert f"memory_{item.name}" in all_sentences()
