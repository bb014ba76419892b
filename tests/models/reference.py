"""transformers' answers, and the comparison rules of the project: what must agree, and which rows are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from qanat.kernels import ops
from tests.support.forward import ForwardRunner

ROUTER_MARGIN = 1e-3
"""Rows whose last chosen and first refused expert are closer than this in probability are left out of comparisons.

So are, in bf16, those whose router logits for the two are neighbouring bf16 numbers.
"""


@dataclass
class Answer:
    """Logits of consecutive rows, with the router's decisions of every MoE layer."""

    logits: Tensor  # [rows, V] fp32
    router_logits: list[Tensor] = field(default_factory=list)  # per MoE layer [rows, E]
    expert_ids: list[Tensor] = field(default_factory=list)  # per MoE layer [rows, K]

    @property
    def near_tie(self) -> Tensor:
        """[layers, rows] bool: the router's choice hangs on the last bits."""
        layers = []
        for logits, ids in zip(self.router_logits, self.expert_ids, strict=True):
            last, next_one = logits.sort(-1, descending=True).values[:, ids.shape[1] - 1 :][:, :2].unbind(-1)
            total = logits.float().exp().sum(-1)
            margin = (last.float().exp() - next_one.float().exp()) / total
            layers.append((margin < ROUTER_MARGIN) | (last - next_one <= _ulp(last)))
        rows = self.logits.shape[0]
        return torch.stack(layers) if layers else torch.zeros(0, rows, dtype=torch.bool)

    @property
    def counts(self) -> Tensor:
        """[rows] bool: rows that are compared."""
        return ~self.near_tie.any(0)

    def rows(self, start: int, stop: int) -> Answer:
        """A range of rows."""
        return Answer(
            self.logits[start:stop],
            [layer[start:stop] for layer in self.router_logits],
            [layer[start:stop] for layer in self.expert_ids],
        )


class Transformers:
    """A transformers model that remembers what its routers did."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._seen: list[tuple[Tensor, Tensor]] = []
        for name, module in model.named_modules():
            if name.endswith(".mlp.gate"):
                module.register_forward_hook(self._remember)

    @torch.no_grad()
    def run(self, tokens: Sequence[int], cache: Any = None) -> tuple[Answer, Any]:
        """One pass over these tokens; continue with the cache that it returns."""
        self._seen.clear()
        out = self.model(input_ids=torch.tensor([list(tokens)]), past_key_values=cache, use_cache=True)
        logits, ids = [seen[0] for seen in self._seen], [seen[1] for seen in self._seen]
        return Answer(out.logits[0].float(), logits, ids), out.past_key_values

    def _remember(self, module: Any, inputs: Any, output: tuple[Tensor, Tensor, Tensor]) -> None:
        self._seen.append((output[0], output[2]))


def _ulp(x: Tensor) -> Tensor:
    """Distance to the next number of x's type, fp32."""
    return torch.exp2(x.float().abs().log2().floor()) * torch.finfo(x.dtype).eps


def joined(answers: Sequence[Answer]) -> Answer:
    """Answers one after another."""
    layers = range(len(answers[0].router_logits))
    return Answer(
        torch.cat([answer.logits for answer in answers]),
        [torch.cat([answer.router_logits[layer] for answer in answers]) for layer in layers],
        [torch.cat([answer.expert_ids[layer] for answer in answers]) for layer in layers],
    )


def run_with_ties_of(
    runner: ForwardRunner, batch: Sequence[tuple[str, Sequence[int]]], expected: Sequence[Answer]
) -> list[Tensor]:
    """One step in which a router's near ties fall as they did in the reference.

    Rows with a near tie are left out of the comparison anyway; taking the reference's side there keeps the other
    side's result from running through the rest of the sequence. Every other routing decision is our own.
    """
    with patch.object(ops, "moe_route", _Ties(joined(expected))):
        return runner.step(batch)


class _Ties:
    """Routes like `ops.moe_route`, but asks the reference where the choice hangs on the last bits."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.route, self.layer = answer, ops.moe_route, 0

    def __call__(self, router_logits: Tensor, top_k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
        weights, ids = self.route(router_logits, top_k, renormalise)
        tied, theirs = self.answer.near_tie[self.layer], self.answer.expert_ids[self.layer]
        self.layer += 1
        chosen = torch.softmax(router_logits.float(), -1).gather(1, theirs)
        if renormalise:
            chosen = chosen / chosen.sum(-1, keepdim=True)
        weights = torch.where(tied.unsqueeze(1), chosen, weights)
        return weights, torch.where(tied.unsqueeze(1), theirs, ids)


def assert_close(ours: Tensor, expected: Answer, tolerance: float) -> int:
    """Compared rows agree within `tolerance` of the logits' range; returns how many rows were compared."""
    keep = expected.counts
    span = (expected.logits.max() - expected.logits.min()).item()
    worst = (ours - expected.logits)[keep].abs().max().item()
    assert worst <= tolerance * span, f"logits differ by {worst / span:.2e} of their range"
    return int(keep.sum())


def assert_same_tokens(ours: Tensor, expected: Answer) -> int:
    """The greedy token agrees wherever the reference's two best are more than 4 bf16 ulp apart; returns rows."""
    best = expected.logits.topk(2, -1).values
    sure = expected.counts & (best[:, 0] - best[:, 1] > 4 * _ulp(best[:, 0].bfloat16()))
    wrong = sure & (ours.argmax(-1) != expected.logits.argmax(-1))
    assert not wrong.any(), f"rows {wrong.nonzero().flatten().tolist()} have another greedy token"
    return int(sure.sum())
