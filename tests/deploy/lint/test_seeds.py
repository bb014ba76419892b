"""The guides that the project began with: all that is wrong in them is found, at its line, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.lint.engine import lint
from qanat.deploy.sources.documents import read_document

HERE = Path(__file__).resolve()
SEEDS = HERE.parents[3].parent / "shared" / "seeds"
GOLDEN: dict[str, Any] = yaml.safe_load(
    (HERE.parents[1] / "golden" / "seeds.yaml").read_text(encoding="utf-8")
)
NUMBERS = [number for number in GOLDEN if " " not in number]
PAIRS = [pair for pair in GOLDEN if " " in pair]
NUM_KNOWN_MISTAKES = 37

pytestmark = pytest.mark.skipif(not SEEDS.is_dir(), reason="the guides are not beside the checkout")


def findings(number: str) -> tuple[set[tuple[int, str]], set[tuple[int, str]]]:
    """Lines and rules above info, and those of info."""
    (path,) = SEEDS.glob(f"{number}_*.txt")
    found = lint([read_document(path.name, path.read_text(encoding="utf-8"))])
    grave = {(one.place.line, one.rule_id) for one in found if one.severity is not Severity.INFO}
    return grave, {(one.place.line, one.rule_id) for one in found if one.severity is Severity.INFO}


def expected(number: str, severity: str) -> set[tuple[int, str]]:
    entries = [one for one in GOLDEN[number] if (one.get("severity") == "info") == (severity == "info")]
    return {(line, one["rule"]) for one in entries for line in one["lines"]}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_guide_has_these_faults_and_no_others(number: str) -> None:
    grave, info = findings(number)
    assert grave == expected(number, "above")
    assert expected(number, "info") <= info


@pytest.mark.parametrize("pair", PAIRS)
def test_two_guides_together_show_more_than_each_alone(pair: str) -> None:
    paths = [path for number in pair.split() for path in SEEDS.glob(f"{number}_*.txt")]
    documents = [read_document(path.name, path.read_text(encoding="utf-8")) for path in paths]
    together = {(one.place.path, one.place.line, one.rule_id) for one in lint(documents)}
    alone = {
        (one.place.path, one.place.line, one.rule_id) for document in documents for one in lint([document])
    }
    rules = {(line, one["rule"]) for one in GOLDEN[pair] for line in one["lines"]}
    assert {(line, rule) for _, line, rule in together - alone} == rules


def test_every_known_mistake_is_found() -> None:
    named = {one["mistake"] for entries in GOLDEN.values() for one in entries if "mistake" in one}
    assert named == set(range(1, NUM_KNOWN_MISTAKES + 1))


def test_a_named_image_shows_what_a_guide_loses_on_it() -> None:
    (path,) = SEEDS.glob("003_*.txt")
    document = read_document(path.name, path.read_text(encoding="utf-8"))
    found = {(one.place.line, one.rule_id) for one in lint([document], "v0.18.0rc1-a3")}
    assert (115, "MOE012") in found
    assert (115, "ADD006") not in found
