"""Every constraint of the fact sheet is a rule here, under its own id or under that of a more general one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.lint.engine import lint
from qanat.deploy.sources.documents import read_document

DATA = Path(__file__).resolve().parents[3].parent / "shared/reference/vllm_ascend/constraints.yaml"
SERVER = "vllm serve Qwen/Qwen3-32B -tp 8"
PORTS = '--kv-transfer-config \'{"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_producer", "kv_port": 36100}\''
NUM_CONSTRAINTS = 126

# Constraint: the general rule that finds it, what breaks it, and under which release.
COVERED = {
    "CLI010": ("CLI009", f"{SERVER} --disable-frontend-multiprocessing", "v0.23.0"),
    "CLI012": ("CLI011", f"{SERVER} --language-model-only", "v0.13.0"),
    "ENV005": ("ENV003", f"export VLLM_ASCEND_ENABLE_FLASHCOMM=1\n{SERVER}", "v0.20.2rc1"),
    "ENV006": ("ENV003", f"export VLLM_ASCEND_ENABLE_FUSED_MC2=1\n{SERVER}", "v0.28.0rc1"),
    "ENV007": ("ENV003", f"export VLLM_USE_V1=1\n{SERVER}", "v0.13.0"),
    "ENV010": ("ENV003", f"export VLLM_TORCH_PROFILER_DIR=/tmp\n{SERVER}", "v0.17.0rc1"),
    "ENV011": ("ENV003", f"export VLLM_RPC_TIMEOUT=1\n{SERVER}", "v0.23.0"),
    "PD017": ("PORT001", f"{SERVER} --port 36104 {PORTS}", "v0.23.0"),
}


@pytest.mark.skipif(not DATA.is_file(), reason="the constraints are not beside the checkout")
def test_every_constraint_has_a_rule() -> None:
    constraints = yaml.safe_load(DATA.read_text(encoding="utf-8"))["rules"]
    names = [one["id"] for one in constraints]
    assert len(names) == NUM_CONSTRAINTS
    assert {name for name in names if name not in load_knowledge().rules} == set(COVERED)


@pytest.mark.parametrize("constraint", COVERED)
def test_a_general_rule_finds_it(constraint: str) -> None:
    rule, text, image = COVERED[constraint]
    assert rule in {one.rule_id for one in lint([read_document("start.sh", text)], image)}
