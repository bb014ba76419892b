"""Every threshold is compared with."""

from __future__ import annotations

import re
from pathlib import Path

import qanat.deploy.diagnose.questions as questions
from qanat.deploy.knowledge.load import load_knowledge


def test_every_threshold_and_every_metric_is_used() -> None:
    folder = Path(questions.__file__).parent
    text = "".join(file.read_text() for file in [*folder.glob("*.py"), *folder.parent.glob("*.py")])
    for name in load_knowledge().tables["diagnose_thresholds"].entries:
        assert f'threshold("{name}")' in text or f"threshold('{name}')" in text, name
    for name in load_knowledge().tables["metrics"].entries:
        assert f'"{name}"' in text, name


def test_every_issue_that_diagnose_tells_of_has_a_signature_or_an_answer() -> None:
    folder = Path(questions.__file__).parent
    text = "".join(file.read_text() for file in folder.glob("*.py"))
    for name, issue in load_knowledge().tables["issues"].entries.items():
        if "diagnose" in issue.caught_by:
            assert issue.signatures or f'"{name}"' in text, name
    cited = set(re.findall(r'"(vllm-project/[\w-]+#\d+)"', text))
    assert cited <= set(load_knowledge().tables["issues"].entries)
