"""Rule R8: drafts change nothing but the number of steps, whatever a request asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qanat.config.graphs import GraphSettings
from qanat.core.request import FinishReason, Request
from qanat.kernels.native import module
from qanat.scheduler.draft_lengths import DraftLengths
from tests.support.providers import best_kernels  # noqa: F401
from tests.support.speculating import Answers, KnowingDrafter, run
from tests.support.step_loop import make_request
from tests.worker.driver import random_prompt
from tests.worker.tiny_model import VOCAB_SIZE, tiny_model

FAMILIES = ["qwen3", "qwen3_5", pytest.param("qwen3_5_moe", marks=pytest.mark.slow)]
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.9, "top_k": 40, "min_p": 0.01},
    "penalties": {
        "temperature": 0.7,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.4,
    },
    "bias": {"temperature": 0.0, "logit_bias": {7: 3.0, 11: -4.0}, "logprobs": 3},
    "logprobs": {"temperature": 1.0, "logprobs": 2},
    "least": {"temperature": 0.0, "min_tokens": 9, "stop_token_ids": list(range(3, 60))},
    "stops": {"temperature": 1.0, "stop_token_ids": list(range(10, 20))},
    "bad words": {"temperature": 0.0, "bad_words_token_ids": [[4], [9, 9], [17, 3]]},
}


def requests_of(settings: dict[str, Any], max_tokens: int = 24) -> list[Request]:
    """Three requests of different lengths with the same settings."""
    return [
        make_request(name, random_prompt(length, length), max_tokens - i, request_seed=i, **settings)
        for i, (name, length) in enumerate({"a": 5, "b": 30, "c": 17}.items())
    ]


def check(
    make: Callable[[], list[Request]], family: str, num_drafts: int, share: float, **how: Any
) -> Answers:
    """Compares with plain decoding; returns what speculation answered."""
    model = tiny_model(family)
    plain = run(model, make())
    drafter = KnowingDrafter(plain.tokens, share, VOCAB_SIZE)
    lengths = DraftLengths(num_drafts, is_adaptive=False)
    answers = run(model, make(), drafter=drafter, lengths=lengths, **how)
    assert answers.comparable() == plain.comparable()
    return answers


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", SETTINGS)
def test_drafts_change_no_output(family: str, name: str) -> None:
    check(lambda: requests_of(SETTINGS[name]), family, 3, 0.6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("num_drafts", "share"), [(1, 0.0), (5, 0.0), (5, 0.5), (1, 1.0), (5, 1.0)])
def test_right_and_wrong_drafts(family: str, num_drafts: int, share: float) -> None:
    answers = check(lambda: requests_of(SETTINGS["sampled"]), family, num_drafts, share)
    for name, end in answers.ends.items():
        num_outputs = len(answers.tokens[name])
        if share == 0.0:
            assert end.num_accepted == 0 and end.num_drafted > 0
        if share == 1.0:  # the first token comes from the prompt; a step adds one token to its drafts
            num_steps = -(-(num_outputs - 1) // (1 + num_drafts))
            assert end.num_drafted == end.num_accepted == num_outputs - 1 - num_steps


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_drafted_beyond_the_last_token(family: str) -> None:
    answers = check(lambda: requests_of(SETTINGS["greedy"], max_tokens=5), family, 5, 1.0)
    assert {end.finish_reason for end in answers.ends.values()} == {FinishReason.LENGTH}
    assert all(len(row.token_ids) <= 5 for step in answers.steps for row in step.rows)


@pytest.mark.parametrize("family", FAMILIES)
def test_preemption_and_a_crowded_cache(family: str) -> None:
    answers = check(
        lambda: requests_of(SETTINGS["logprobs"], max_tokens=40),
        family,
        3,
        0.7,
        num_blocks=9,
        preempt_at={"a": 7, "c": 11},
        max_num_batched_tokens=24,
    )
    assert answers.ends["a"].num_drafted > 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "num_drafts", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(5, marks=pytest.mark.slow)]
)
def test_eng_010_a_prompt_s_last_tokens_join_a_verified_step(family: str, num_drafts: int) -> None:
    """What is left of the second prompt when the step joins is 1 to k + 2 tokens."""
    for num_left in range(1, num_drafts + 3):
        check(
            lambda num_left=num_left: [  # type: ignore[misc]
                make_request("a", random_prompt(6, 1), 30, temperature=0.0),
                make_request("b", random_prompt(48 + num_left, 2), 12, temperature=0.0),
            ],
            family,
            num_drafts,
            0.5,
            max_num_batched_tokens=54,
        )


def test_other_requests_get_their_tokens_before_anyone_gets_drafts() -> None:
    """Six requests and a budget of eight tokens: two drafts at most in a step, and every row in every step."""
    make = lambda: [  # noqa: E731
        make_request(str(i), random_prompt(3, i), 60, temperature=0.0) for i in range(6)
    ]
    answers = check(make, "qwen3", 3, 1.0, max_num_batched_tokens=8)
    full = [step for step in answers.steps if len(step.rows) == 6]
    assert full and all(sum(row.num_drafted for row in step.rows) <= 2 for step in full)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", ["FULL_DECODE_ONLY", "PIECEWISE"])
def test_verified_steps_run_as_graphs(family: str, mode: str) -> None:
    if not module.is_built():
        pytest.skip(module.why_not())
    sizes = GraphSettings(mode, (1, 2, 4, 8, 16, 32))
    answers = check(lambda: requests_of(SETTINGS["logprobs"]), family, 3, 0.6, graphs=sizes)
    verified = [step for step in answers.steps if any(row.num_drafted for row in step.rows)]
    kinds = {step.graph.kind for step in verified if step.graph is not None and step.graph.is_decode}
    assert kinds == {"full" if mode == "FULL_DECODE_ONLY" else "piecewise"}
