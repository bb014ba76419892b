"""The distribution of sampled tokens is the model's with drafts too; a verifier that is 1 % too kind is caught."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from qanat.core.batch import ScheduledBatch
from qanat.scheduler.draft_lengths import DraftLengths
from qanat.worker.batch_inputs import RowWork
from qanat.worker.graphs.runner import Scores
from qanat.worker.model_runner import ModelRunner
from tests.support.forward import ForwardRunner
from tests.support.providers import best_kernels  # noqa: F401
from tests.support.speculating import run
from tests.support.step_loop import make_request
from tests.worker.driver import random_prompt
from tests.worker.tiny_model import tiny_model

pytestmark = pytest.mark.slow

DRAFTED, NUM_DRAFTS, NUM_REQUESTS, NUM_TOKENS = 7, 2, 12, 480
KINDNESS = 0.01
"""A wrong verifier takes so many of the drafts that are not the token drawn."""
MOST_DEVIATIONS = 4.5
"""Of a right one: less than once in 100,000 seeds."""


@dataclass
class OneTokenDrafter:
    """Drafts the same token always, so that any kindness to drafts shows in how often it comes."""

    capture_s: float = 0.0
    ring: None = None

    def begin(self, batch: ScheduledBatch) -> None:
        """Nothing to note."""

    def pause(self) -> None:
        """Nothing is kept."""

    def propose(self, works: Sequence[RowWork], max_drafts: Sequence[int]) -> list[list[int]]:
        return [[DRAFTED] * most for most in max_drafts]

    def observe(self, works: Sequence[RowWork], hidden: Tensor, taps: Sequence[Tensor]) -> None:
        """Nothing to learn."""


def deviations() -> float:
    """By how many standard deviations the drafted token is put out more often than its probabilities say."""
    model = tiny_model("qwen3")
    prompts = {f"r{i}": random_prompt(5 + i, i) for i in range(NUM_REQUESTS)}
    requests = [
        make_request(name, prompt, NUM_TOKENS, temperature=1.0, request_seed=i)
        for i, (name, prompt) in enumerate(prompts.items())
    ]
    answers = run(
        model, requests, drafter=OneTokenDrafter(), lengths=DraftLengths(NUM_DRAFTS, is_adaptive=False)
    )
    surplus = variance = 0.0
    for name, prompt in prompts.items():
        tokens = [*prompt, *answers.tokens[name]]
        context, ids = ForwardRunner(model).context([("r", tokens)])
        scores = model.compute_logits(model(ids, context)[len(prompt) - 1 : -1])
        shares = scores.softmax(-1)[:, DRAFTED].double()
        surplus += answers.tokens[name].count(DRAFTED) - float(shares.sum())
        variance += float((shares * (1 - shares)).sum())
    return surplus / math.sqrt(variance)


def test_drafts_do_not_change_how_often_a_token_comes() -> None:
    assert abs(deviations()) < MOST_DEVIATIONS


def test_a_verifier_that_is_one_percent_too_kind_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, choose = random.Random(1), ModelRunner._verify

    def kind(runner: ModelRunner, pairs: Sequence[object], scores: Scores) -> None:
        choice = torch.from_numpy(scores.choice.copy())
        wrong = choice[0] != DRAFTED
        taken = torch.tensor([chance.random() < KINDNESS for _ in range(len(wrong))])
        choice[0][wrong & taken] = DRAFTED
        choose(runner, pairs, Scores(scores.logits, choice.numpy()))  # type: ignore[arg-type]

    monkeypatch.setattr(ModelRunner, "_verify", kind)
    assert deviations() > MOST_DEVIATIONS
