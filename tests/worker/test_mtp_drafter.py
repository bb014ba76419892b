"""Drafts of a multi-token-prediction layer are those of its plain evaluation, however the tokens came."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from qanat.config.graphs import GraphSettings
from qanat.kernels.native import module
from qanat.models.decoder import CausalLM
from qanat.models.dummy import load_dummy
from qanat.scheduler.draft_lengths import DraftLengths
from qanat.worker.hidden_ring import WINDOW
from qanat.worker.workspace import RING_SIZE
from tests.support.drafting import GRAPHS, NUM_DRAFTS, Recorded, speculate
from tests.support.forward import ForwardRunner
from tests.support.providers import best_kernels  # noqa: F401
from tests.support.speculating import BLOCK_SIZE, run
from tests.support.step_loop import make_request
from tests.worker.driver import random_prompt
from tests.worker.tiny_model import CONFIGS


@pytest.fixture(scope="module", params=["qwen3_5", pytest.param("qwen3_5_moe", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> CausalLM:
    config = dataclasses.replace(CONFIGS[request.param], num_draft_layers=1)
    return load_dummy(config, torch.float32, seed=3)


def plain_drafts(model: CausalLM, tokens: list[int], num_drafts: int) -> list[int]:
    """Whole sequence first, then token by token, in caches of their own; nothing stands in slot 0."""
    runner = ForwardRunner(model, block_size=BLOCK_SIZE)
    context, ids = runner.context([("r", tokens)])
    hidden = model(ids, context)
    shape = (2, 128, BLOCK_SIZE, model.config.num_key_value_heads, model.config.head_dim)
    runner = ForwardRunner(model, block_size=BLOCK_SIZE)
    runner.kv_cache = [torch.zeros(shape)]

    def entries(own: list[int], rows: Tensor) -> Tensor:
        context, ids = runner.context([("r", own)])
        runner.running["r"].num_computed += len(own)
        return model.draft(ids, rows, context)

    entries(tokens[:1], hidden[:1])
    runner.kv_cache[0].zero_()
    row = entries(tokens[1:], hidden[:-1])[-1:]
    drafts: list[int] = []
    for _ in range(num_drafts):
        drafts.append(int(model.compute_logits(row).argmax()))
        row = entries(drafts[-1:], row)
    return drafts


def check(model: CausalLM, recorded: Recorded, every: int) -> None:
    assert recorded.drafts
    for tokens, drafts in recorded.drafts[::every]:
        assert drafts == plain_drafts(model, tokens, len(drafts))


@pytest.mark.parametrize("graphs", [None, GRAPHS], ids=["eager", "graphs"])
def test_drafts_are_those_of_the_plain_evaluation(model: CausalLM, graphs: GraphSettings | None) -> None:
    if graphs is not None and not module.is_built():
        pytest.skip(module.why_not())
    requests = [("a", 1, 30), ("b", 5, 25), ("c", 70, 20), ("d", 33, 20)]
    plain = run(model, [make_request(n, random_prompt(p, p), o, temperature=0.0) for n, p, o in requests])
    answers, recorded = speculate(model, requests, graphs, max_num_batched_tokens=48)
    assert answers.comparable() == plain.comparable()
    check(model, recorded, 7)


def test_a_resumed_request_drafts_as_before(model: CausalLM) -> None:
    _, recorded = speculate(model, [("a", 20, 40), ("b", 9, 40)], preempt_at={"a": 12})
    check(model, recorded, 9)


class Pausing(DraftLengths):
    """No drafts for so many steps from the fifth on."""

    def __init__(self, num_paused: int) -> None:
        super().__init__(NUM_DRAFTS, is_adaptive=False)
        self.num_steps, self.num_paused = 0, num_paused

    def begin_step(self, decoding: Sequence[object]) -> int:
        self.num_steps += 1
        return 0 if 4 < self.num_steps <= 4 + self.num_paused else NUM_DRAFTS


@pytest.mark.parametrize("graphs", [None, GRAPHS], ids=["eager", "graphs"])
def test_drafts_after_a_short_pause_are_as_without_it(model: CausalLM, graphs: GraphSettings | None) -> None:
    """Steps without drafts have left their hidden rows in the ring."""
    if graphs is not None and not module.is_built():
        pytest.skip(module.why_not())
    _, recorded = speculate(model, [("a", 20, 80), ("b", 70, 70)], graphs, lengths=Pausing(WINDOW - 1))
    after = [one for one in recorded.drafts if len(one[0]) > 20 + WINDOW]
    assert after
    check(model, recorded, 9)


def test_the_draft_cache_lapses_and_begins_anew(model: CausalLM) -> None:
    """Drafts are off for longer than rows are kept, then on: output stays, and drafts come again."""
    requests = [("a", 10, 150)]
    plain = run(model, [make_request("a", random_prompt(10, 10), 150, temperature=0.0)])
    answers, recorded = speculate(model, requests, lengths=Pausing(RING_SIZE + 20))
    assert answers.comparable() == plain.comparable()
    lengths = [len(tokens) for tokens, _ in recorded.drafts]
    gap = max(after - before for before, after in zip(lengths, lengths[1:], strict=False))
    assert gap > RING_SIZE and lengths[-1] > 130
