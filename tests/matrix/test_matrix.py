"""Promise 1: a call gets the same tokens and log-probabilities, bit by bit, however and beside whomever it is served.

`scripts/soak --matrix` looks on for as long as one likes, and `scripts/soak --replay FILE` shows a fault again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix.scenario import Scenario
from tests.matrix.search import Search, report_of
from tests.matrix.serving import faults_of

KEPT = sorted((Path(__file__).parent / "scenarios").glob("*.json"))
"""Scenarios that have shown a fault."""


def check(folder: Path, seed: int, num_examples: int, **sizes: int) -> None:
    """A fault comes with the file and the command that show it again."""
    finding = Search(folder, **sizes).run(seed, num_examples)
    if finding is not None:
        pytest.fail(report_of(finding, seed))


@pytest.mark.parametrize("seed", [7])
def test_company_changes_no_answer(folder: Path, seed: int) -> None:
    check(folder, seed, num_examples=6, max_calls=5, max_ways=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11])
def test_company_changes_no_answer_for_longer(folder: Path, seed: int) -> None:
    check(folder, seed, num_examples=25)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_was_once_wrong_is_right(folder: Path, path: Path) -> None:
    assert faults_of(Scenario.read(path), folder) == []
