"""docs/trials.md answers every open trial case of its categories, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.house.checkout import ROOT

PAGE = (ROOT / "docs" / "trials.md").read_text(encoding="utf-8")
CASES = ROOT.parent / "shared" / "trials" / "cases_open.yaml"
CATEGORIES = {"api", "perf", "engine", "ops", "pd", "bench"}
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE)
ROWS = dict(re.findall(r"^\| ([A-Z]+-\d{3}) \| [^\n]*? \| ([^\n]*) \|$", PAGE, re.MULTILINE))


def test_every_named_test_exists() -> None:
    assert len(NAMED) > 80
    for path, name in NAMED:
        text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
        assert re.search(rf"def {name}\(", text), f"{path}::{name}"


def test_every_case_has_a_test_or_words() -> None:
    assert len(ROWS) > 60
    for case, cell in ROWS.items():
        assert "::test_" in cell or len(cell.split()) >= 4, case


@pytest.mark.skipif(not CASES.is_file(), reason="the trial cases are not part of the checkout")
def test_every_open_case_is_on_the_page() -> None:
    cases = yaml.safe_load(Path(CASES).read_text(encoding="utf-8"))
    cases = cases["cases"] if isinstance(cases, dict) else cases
    wanted = {case["id"] for case in cases if case["category"] in CATEGORIES}
    assert len(wanted) > 50
    assert wanted == set(ROWS)
