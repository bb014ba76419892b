"""The matrix can fail: what is wrong is found, made small, written down and shown again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.matrix.scenario import Call, Scenario, Way, Weights
from tests.matrix.search import Search, report_of, scenarios
from tests.matrix.serving import faults_of

USUAL = {"max_num_seqs": 4, "max_num_batched_tokens": 512}
GREEDY = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True}
TWICE = [
    Call(num_common=130, sampling=GREEDY),
    Call(num_common=130, num_own=3, gap=4, sampling=GREEDY, boundaries=[0.97]),
    Call(num_common=130, num_own=2, follows=1, sampling=GREEDY),
]


@given(scenarios())
@settings(max_examples=30)
def test_a_scenario_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, one: Scenario
) -> None:
    path = tmp_path_factory.getbasetemp() / "scenario.json"
    one.write(path)
    assert Scenario.read(path) == one


def test_a_finding_is_made_small_and_comes_with_the_command_that_shows_it(tmp_path: Path) -> None:
    def judge(scenario: Scenario, _: Path) -> list[str]:
        is_wrong = any(call.num_common > 60 for call in scenario.calls)
        return (
            ["wrong"] if is_wrong and any("speculative_config" in way.flags for way in scenario.ways) else []
        )

    finding = Search(tmp_path, judge).run(seed=1, num_examples=100)
    assert finding is not None
    assert max(call.num_common for call in finding.scenario.calls) == 64
    assert len(finding.scenario.calls) <= 2
    assert len(finding.scenario.ways) <= 2
    place = tmp_path / "found.json"
    assert f"scripts/soak --replay {place}" in report_of(finding, 1, place)
    assert Scenario.read(place) == finding.scenario
    assert Search(tmp_path, lambda *_: []).run(seed=1, num_examples=10) is None


@pytest.mark.parametrize("family", ["qwen3_5", "demo"])
def test_a_wrong_state_is_noticed(folder: Path, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(weights=Weights(family=family), calls=TWICE, ways=[Way(flags=USUAL)])
    assert faults_of(scenario, folder) == []
    monkeypatch.setattr("qanat.worker.model_runner.copy_states", lambda *_: None)
    assert any("differ from" in fault for fault in faults_of(scenario, folder))


@pytest.mark.parametrize(
    ("sampling", "fate"),
    [
        ({"n": 3, "temperature": 1.0, "logprobs": 2, "max_tokens": 9}, {"num_prior": 4}),
        ({"temperature": 1.0, "stop": ["e"], "max_tokens": 30}, {"abort_after": 3}),
        ({"temperature": 1.0, "prompt_logprobs": 1, "max_tokens": 9}, {"preempt_after": [2, 5]}),
        ({"temperature": 1.0, "n": 2, "logprobs": 1, "max_tokens": 9}, {"spoil_after": 4}),
    ],
)
def test_every_fate_is_compared(folder: Path, sampling: dict[str, Any], fate: dict[str, Any]) -> None:
    """Calls that differ from what they are compared with are noticed, whatever became of them."""
    weights = Weights(family="qwen3", seed=1)
    calls = [Call(num_common=40, sampling=sampling, **fate)]
    scenario = Scenario(weights=weights, calls=calls, ways=[Way(flags=USUAL)])
    assert faults_of(scenario, folder) == []
