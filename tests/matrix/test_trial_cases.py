"""Faults that users met elsewhere where caching, drafts, preemption and graphs meet, on whole engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.matrix.scenario import Call, Scenario, Way, Weights
from tests.matrix.serving import Company, faults_of, serve_alone

USUAL = {"max_num_seqs": 4, "max_num_batched_tokens": 512, "block_size": 16}
HALF_RIGHT = {"temperature": 2.0, "max_tokens": 40, "ignore_eos": True, "logprobs": 1}
"""Of the drafts of a random model about half are right at this temperature: they share the noise."""


def drafting(count: int, method: str = "mtp", **more: Any) -> dict[str, Any]:
    """Flags for so many drafts in every step."""
    if not count:
        return USUAL | more
    value = {"method": method, "num_speculative_tokens": count, "adaptive": False}
    return USUAL | {"speculative_config": value} | more


def test_eng_001_drafts_leave_no_state_that_later_turns_would_trip_over(folder: Path) -> None:
    """Conversations of several turns, each of which goes on from the answer before, and their first prompt again."""
    calls = []
    for stem, sampling in enumerate([HALF_RIGHT, HALF_RIGHT | {"temperature": 0.0}]):
        calls.append(Call(stem=stem, num_common=50 + 9 * stem, sampling=sampling))
        calls += [Call(follows=1, num_own=11 + stem, gap=1, sampling=sampling) for _ in range(2)]
        calls.append(Call(stem=stem, num_common=50 + 9 * stem, gap=120, sampling=sampling))
    ways = [Way(flags=drafting(count)) for count in (0, 1, 3)]
    ways.append(Way(flags=drafting(3, enable_prefix_caching=False)))
    scenario = Scenario(weights=Weights(family="qwen3_5"), calls=calls, ways=ways)
    assert faults_of(scenario, folder) == []


@pytest.mark.parametrize("is_chunked", [True, False])
def test_eng_005_preempted_with_drafts_and_a_cache(folder: Path, is_chunked: bool) -> None:
    """Each request loses its place after 1, 8 and 31 tokens or so, and there is room for hardly more than one."""
    more: dict[str, Any] = {} if is_chunked else {"enable_chunked_prefill": False}
    more |= {"max_num_batched_tokens": 70 if is_chunked else 768}
    calls = [
        Call(num_common=60, sampling=HALF_RIGHT, preempt_after=[2 + start, 9 + start, 25])
        for start in range(4)
    ]
    ways = [Way(flags=drafting(count, **more), num_spare_blocks=2) for count in (0, 3)]
    scenario = Scenario(weights=Weights(family="qwen3_5"), calls=calls, ways=ways)
    assert faults_of(scenario, folder) == []


@pytest.mark.parametrize("mode", ["FULL_DECODE_ONLY", "PIECEWISE"])
def test_eng_010_the_rest_of_a_prompt_joins_a_verified_step(folder: Path, mode: str) -> None:
    """What is left of the second prompt when it joins is 1 to k + 2 tokens."""
    graphs = {"compilation_config": {"cudagraph_mode": mode, "cudagraph_capture_sizes": [4, 8, 16]}}
    for count in (1, 3):
        calls = [Call(num_common=6, sampling=HALF_RIGHT)]
        for num_left in range(1, count + 3):
            calls.append(Call(gap=6, num_common=64, num_own=num_left, sampling=_short(HALF_RIGHT)))
        ways = [Way(flags=drafting(count, max_num_batched_tokens=72, **graphs))]
        scenario = Scenario(weights=Weights(family="qwen3_5"), calls=calls, ways=ways)
        assert faults_of(scenario, folder) == []


def test_eng_033_what_drafts_reserve_comes_back(folder: Path) -> None:
    """Requests that stop, reach their length or are aborted while drafting; `Company` counts blocks and states."""
    kinds: list[dict[str, Any]] = [
        {"sampling": HALF_RIGHT},
        {"sampling": HALF_RIGHT | {"stop_token_ids": list(range(5, 120))}},
        {"sampling": HALF_RIGHT, "abort_after": 3},
        {"sampling": HALF_RIGHT, "preempt_after": [4]},
    ]
    calls = [Call(num_own=5 + place, gap=place % 3, **kinds[place % 4]) for place in range(8)]
    scenario = Scenario(
        weights=Weights(family="qwen3_5"),
        calls=calls,
        ways=[Way(flags=drafting(5), num_spare_blocks=3)],
    )
    assert faults_of(scenario, folder) == []


SPOILT = [
    Call(num_common=70, sampling=HALF_RIGHT),
    Call(num_common=70, num_own=5, gap=3, sampling=HALF_RIGHT, spoil_after=8),
    Call(num_common=70, num_own=9, sampling=HALF_RIGHT, preempt_after=[5]),
    Call(num_common=70, num_own=5, gap=60, sampling=HALF_RIGHT),
]
"""The second one's scores stop being numbers; the last one asks much of the same, in the places that it has left."""


@pytest.mark.parametrize("family", ["qwen3_5", pytest.param("qwen3", marks=pytest.mark.slow)])
def test_eng_036_scores_that_are_no_numbers_harm_nobody_else(folder: Path, family: str) -> None:
    method = "mtp" if family == "qwen3_5" else "eagle3"
    ways = [Way(flags=USUAL), Way(flags=drafting(3, method), num_spare_blocks=4)]
    ways.append(Way(flags=drafting(3, method, async_scheduling=True)))
    scenario = Scenario(weights=Weights(family=family), calls=SPOILT, ways=ways)
    assert faults_of(scenario, folder) == []
    company = Company(scenario, serve_alone(scenario, folder), ways[0], folder)
    assert [one.is_spoilt for [one] in company.serve()] == [False, True, False, False]


@pytest.mark.parametrize("family", ["qwen3_5", pytest.param("qwen3", marks=pytest.mark.slow)])
def test_two_ranks_have_the_bits_of_one(folder: Path, family: str) -> None:
    """A model without experts, with hits, drafts, preemption, graphs, steps that overlap and scores that are none."""
    method = "mtp" if family == "qwen3_5" else "eagle3"
    ranks = Way(flags=drafting(3, method, tensor_parallel_size=2, async_scheduling=True), num_spare_blocks=6)
    scenario = Scenario(weights=Weights(family=family), calls=SPOILT, ways=[ranks])
    assert faults_of(scenario, folder) == []


def test_these_cases_draft_and_half_of_it_is_right(folder: Path) -> None:
    """Else they would prove nothing."""
    scenario = Scenario(
        weights=Weights(family="qwen3_5"),
        calls=[Call(num_common=40, sampling=HALF_RIGHT)],
        ways=[Way(flags=drafting(3))],
    )
    company = Company(scenario, serve_alone(scenario, folder), scenario.ways[0], folder)
    company.serve()
    counts = company.engine.stats().speculation
    assert 0.15 < counts.num_accepted_tokens / counts.num_draft_tokens < 0.85


def _short(sampling: dict[str, Any]) -> dict[str, Any]:
    return sampling | {"max_tokens": 6}
