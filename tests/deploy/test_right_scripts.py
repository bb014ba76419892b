"""Scripts that are right: corrected by hand from the guides, one deployment for each file or folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.lint.engine import lint
from qanat.deploy.sources.documents import read_document

RIGHT = Path(__file__).parent / "scripts" / "right"
DEPLOYMENTS = sorted(RIGHT.iterdir())


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=[one.name for one in DEPLOYMENTS])
def test_nothing_above_info_is_raised(deployment: Path) -> None:
    files = sorted(deployment.iterdir()) if deployment.is_dir() else [deployment]
    documents = [read_document(file.name, file.read_text(encoding="utf-8")) for file in files]
    assert all(document.launches for document in documents)
    raised = [one for one in lint(documents) if one.severity is not Severity.INFO]
    assert [(one.place.path, one.place.line, one.rule_id, one.message) for one in raised] == []


def test_there_are_a_dozen() -> None:
    assert sum(1 for file in RIGHT.rglob("*") if file.is_file()) >= 12
