"""Hypothesis looks for a scenario with a fault, and makes the first one that it finds as small as it can."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from tests.matrix.calls import calls
from tests.matrix.scenario import Scenario
from tests.matrix.serving import faults_of
from tests.matrix.settings import ways, weights

MAX_CALLS = 8
MAX_WAYS = 4


@st.composite
def scenarios(draw: st.DrawFn, max_calls: int = MAX_CALLS, max_ways: int = MAX_WAYS) -> Scenario:
    """Any scenario."""
    model = draw(weights())
    return Scenario(
        weights=model,
        calls=draw(st.lists(calls(), min_size=1, max_size=max_calls)),
        ways=draw(st.lists(ways(model), min_size=1, max_size=max_ways)),
    )


@dataclass
class Finding:
    """A scenario with what is wrong in it."""

    scenario: Scenario
    faults: list[str]


class Search:
    """Looks through scenarios.

    Args:
        folder: for models; see `tests.matrix.models.write_folders`.
        judge: what is wrong with a scenario, by default what differs from calls served alone.
        max_calls, max_ways: of a scenario.
        present: holds the scenario that is looked at, for the case that it ends the process.

    Attributes:
        num_examples: scenarios looked at, those that made a finding smaller included.
    """

    def __init__(
        self,
        folder: Path,
        judge: Callable[[Scenario, Path], list[str]] = faults_of,
        max_calls: int = MAX_CALLS,
        max_ways: int = MAX_WAYS,
        present: Path | None = None,
    ) -> None:
        self._folder = folder
        self._present = present
        self._judge = judge
        self._scenarios = scenarios(max_calls, max_ways)
        self.num_examples = 0

    def run(self, seed: int, num_examples: int) -> Finding | None:
        """Looks at so many scenarios; a finding is as small as it could be made.

        Args:
            seed: the same one looks at the same scenarios.
            num_examples: how many.
        """
        last: list[Finding] = []

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=num_examples,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            print_blob=False,
            report_multiple_bugs=False,
        )
        @hypothesis.given(self._scenarios)
        def look(scenario: Scenario) -> None:
            self.num_examples += 1
            if self._present is not None:
                scenario.write(self._present)
            faults = self._judge(scenario, self._folder)
            if faults:
                last[:] = [Finding(scenario, faults)]
                raise AssertionError(faults[0])

        try:
            look()
        except (AssertionError, hypothesis.errors.Flaky, BaseExceptionGroup):
            assert last
            return last[0]
        return None


def report_of(finding: Finding, seed: int, place: Path | None = None) -> str:
    """What was found, and the command that shows it again; the scenario is written to a file."""
    if place is None:
        place = Path(tempfile.mkdtemp(prefix="qanat-matrix-")) / f"scenario-{seed}.json"
    finding.scenario.write(place)
    lines = [f"seed {seed}: an answer is not what it is alone.", *finding.faults[:10]]
    return "\n".join([*lines, f"Run it again: scripts/soak --replay {place}"])
