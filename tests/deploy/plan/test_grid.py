"""Models, chips, releases, scenarios and topologies across each other: what is planned lints clean as rendered."""

from __future__ import annotations

import itertools
import re

import pytest

from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.lint.engine import lint
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.planner import plan_once
from qanat.deploy.plan.wish import Scenario, Topology, Wish
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import RenderOptions
from qanat.deploy.sources.documents import read_document
from tests.deploy.plan.wishes import GUIDES, KNOWLEDGE, RELEASES

KINDS = (
    "Qwen3.5-397B-A17B",
    "Qwen3.5-35B-A3B",
    "Qwen3.6-35B-A3B",
    "Qwen3.5-27B",
    "Qwen3.5-4B",
    "Qwen3-32B",
    "Qwen3-30B-A3B",
)
CHIPS = ("A2", "A3", "950DT", "310P")
EXPECTED = (
    r"needs \S+ or newer",
    r"does not fit on",
    r"does not compute in",
    r"on 310P",
    r"is not possible: (it carries recurrent states|\S+ does not have it)",
)
"""What a wish of this grid may be refused for: age, memory, formats, and what a chip or a connector cannot."""


def case_of(number: int, model: str, chip: str, release: str) -> Wish:
    """One of the scenarios and topologies in turn, so that the grid meets all of them."""
    scenario = list(Scenario)[number % 4]
    topology = (None, Topology.MULTI_NODE, Topology.DISAGGREGATED, None, Topology.RAY)[number % 5]
    return Wish(
        model=model,
        hardware=chip,
        image=release,
        scenario=scenario,
        topology=topology,
        nodes=None if topology is None else 2,
        concurrency=(None, 1, 48)[number % 3],
    )


CASES = [case_of(number, *parts) for number, parts in enumerate(itertools.product(KINDS, CHIPS, RELEASES))]


@pytest.mark.parametrize("chip", CHIPS)
def test_every_wish_of_the_grid_is_planned_or_refused_for_a_good_reason(chip: str) -> None:
    num_planned = 0
    for wish in CASES:
        if wish.hardware != chip:
            continue
        try:
            plan_once(wish, KNOWLEDGE)
            num_planned += 1
        except ImpossibleWish as refusal:
            assert any(re.search(pattern, refusal.why) for pattern in EXPECTED), (wish, refusal.why)
    assert num_planned >= 10


def faults(plan: Plan) -> list[str]:
    files = render(plan, RenderOptions(language="en", install="image"))
    documents = [read_document(path, file.text) for path, file in files.items() if path.endswith(".sh")]
    found = [one for one in lint(documents, plan.image) if one.severity is not Severity.INFO]
    return [f"{one.place.path}: {one.rule_id} {one.message}" for one in found]


@pytest.mark.parametrize("name", GUIDES)
def test_the_rendered_scripts_of_the_guides_lint_clean(name: str) -> None:
    assert faults(plan_once(GUIDES[name], KNOWLEDGE)) == []
