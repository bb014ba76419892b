"""Every signature matches its examples and nothing near them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from qanat.deploy.knowledge.kinds.logs import LogSignature
from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.knowledge.load import load_knowledge

SIGNATURES = load_knowledge().signatures
REFERENCE = Path(__file__).parents[4] / "shared/reference/vllm_ascend"


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.name)
def test_every_signature_matches_its_examples_and_not_its_near_miss(signature: LogSignature) -> None:
    assert signature.examples
    for example in signature.examples:
        assert re.search(signature.pattern, example), example
        assert any(literal in example for literal in signature.literals), example
    assert not re.search(signature.pattern, signature.near_miss)


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.name)
def test_no_example_is_taken_for_another_fault(signature: LogSignature) -> None:
    for other in SIGNATURES:
        for example in signature.examples:
            assert other is signature or not re.search(other.pattern, example), (other.name, example)


def test_every_fault_has_a_remedy() -> None:
    for signature in SIGNATURES:
        assert signature.severity is Severity.INFO or signature.remedy.endswith("."), signature.name
        assert signature.cause.endswith("."), signature.name


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference beside the project is absent")
def test_all_signatures_and_issues_of_the_reference_are_known() -> None:
    signatures = yaml.safe_load((REFERENCE / "log_signatures.yaml").read_text())["signatures"]
    assert {one["id"] for one in signatures} <= {one.name for one in SIGNATURES}
    assert len(signatures) == 78
    issues = yaml.safe_load((REFERENCE / "issues.yaml").read_text())["issues"]
    names = {f"{one.get('repo', 'vllm-project/vllm-ascend')}#{one['n']}" for one in issues}
    assert names <= set(load_knowledge().tables["issues"].entries)
