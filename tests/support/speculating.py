"""Scheduler, cache and a real model runner with a drafter that guesses right as often as it is told to."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from qanat.cache.manager import HybridCacheManager
from qanat.cache.prefix_cache import PrefixRules
from qanat.cache.spec import cache_spec
from qanat.config.graphs import GraphSettings
from qanat.config.resolved import SchedulerLimits
from qanat.core.batch import ScheduledBatch, StepOutput
from qanat.core.constraint import MatcherFactory
from qanat.core.outputs import RequestOutput
from qanat.core.request import Request
from qanat.models.decoder import CausalLM
from qanat.scheduler.draft_lengths import DraftLengths
from qanat.scheduler.scheduler import Scheduler
from qanat.worker.batch_inputs import RowWork
from qanat.worker.cache_tensors import CacheTensors, allocate_cache
from qanat.worker.drafters.base import Drafter
from qanat.worker.graphs.maker import NativeGraphMaker
from qanat.worker.model_runner import ModelRunner, RunnerLimits
from qanat.worker.row_state import RowTable
from tests.support.fake_clock import FakeClock

BLOCK_SIZE = 16
MAX_DRAFTS = 5
LIMITS = SchedulerLimits(max_num_batched_tokens=64, max_num_seqs=6, max_model_len=512)


@dataclass
class KnowingDrafter:
    """Drafts what is known to follow, right with a given probability; it says as much as it is allowed to.

    Attributes:
        outputs: what plain decoding yields, by the name of the request.
        share_right: probability that a draft is the right token.
        vocab_size: wrong drafts are any other token.
    """

    outputs: Mapping[str, Sequence[int]]
    share_right: float
    vocab_size: int
    chance: random.Random = field(default_factory=lambda: random.Random(5))
    capture_s: float = 0.0
    ring: None = None

    def begin(self, batch: ScheduledBatch) -> None:
        """Nothing to note."""

    def pause(self) -> None:
        """Nothing is kept."""

    def propose(self, works: Sequence[RowWork], max_drafts: Sequence[int]) -> list[list[int]]:
        return [self._drafts(work, most) for work, most in zip(works, max_drafts, strict=True)]

    def observe(self, works: Sequence[RowWork], hidden: Tensor, taps: Sequence[Tensor]) -> None:
        """Nothing to learn."""

    def _drafts(self, work: RowWork, most: int) -> list[int]:
        known = self.outputs[work.state.request_id]
        start = work.state.num_tokens - work.state.num_prompt_tokens
        drafts = []
        for index in range(start, start + most):
            token = known[index] if index < len(known) else 0
            if self.chance.random() >= self.share_right:
                token = (token + 1 + self.chance.randrange(self.vocab_size - 1)) % self.vocab_size
            drafts.append(token)
        return drafts


@dataclass
class Answers:
    """What came out: tokens, log-probabilities and the last output of each request, and all steps."""

    tokens: dict[str, list[int]] = field(default_factory=dict)
    logprobs: dict[str, list[Any]] = field(default_factory=dict)
    ends: dict[str, RequestOutput] = field(default_factory=dict)
    steps: list[StepOutput] = field(default_factory=list)

    def comparable(self) -> dict[str, tuple[Any, ...]]:
        """Everything that must be the same with and without drafts, log-probabilities to the last bit."""
        return {
            name: (
                tokens,
                repr(self.logprobs[name]),
                self.ends[name].finish_reason,
                self.ends[name].stop_token_id,
            )
            for name, tokens in self.tokens.items()
        }


def run(
    model: CausalLM,
    requests: Sequence[Request],
    *,
    drafter: Drafter | None = None,
    make_drafter: Callable[[RowTable, CacheTensors], Drafter] | None = None,
    lengths: DraftLengths | None = None,
    num_blocks: int = 120,
    graphs: GraphSettings | None = None,
    matcher_factory: MatcherFactory | None = None,
    preempt_at: Mapping[str, int] | None = None,
    prefixes: PrefixRules | None = None,
    **limits: Any,
) -> Answers:
    """Serves requests to their ends. Caches start as NaN: reading what a request has not written shows."""
    bounds = replace(LIMITS, **limits)
    config = model.config
    num_held = 0 if lengths is None else 1 + MAX_DRAFTS
    spec = cache_spec(config, block_size=BLOCK_SIZE, kv_dtype="float32", num_held_rows=num_held)
    num_states = bounds.max_num_seqs + 1 if spec.has_states else 0
    tensors = allocate_cache(spec, num_blocks=num_blocks + 1, num_states=num_states)
    held = [*tensors.held_inputs, *tensors.held_gates]
    for tensor in [*tensors.kv_blocks, *tensors.draft_kv, *tensors.block_rows, *tensors.kept_states, *held]:
        tensor.fill_(torch.nan)
    runner = ModelRunner(
        model,
        tensors,
        RunnerLimits(bounds.max_num_seqs, 32, BLOCK_SIZE, 64, config.vocab_size),
        matcher_factory,
        graphs=graphs,
        maker=NativeGraphMaker(2**22) if graphs is not None else None,
        make_drafter=_maker(drafter, make_drafter, tensors),
    )
    cache = HybridCacheManager(spec, num_blocks + 1, num_states, prefixes)
    scheduler = Scheduler(bounds, cache, FakeClock(), lengths)
    answers = Answers({one.request_id: [] for one in requests}, {one.request_id: [] for one in requests})
    for request in requests:
        scheduler.add(request)
    marks = dict(preempt_at or {})
    while scheduler.has_work:
        batch = scheduler.schedule()
        assert batch is not None and batch.num_tokens <= bounds.max_num_batched_tokens
        step = runner.run(batch)
        answers.steps.append(step)
        for output in scheduler.update(batch, step):
            answers.tokens[output.request_id] += output.new_token_ids
            answers.logprobs[output.request_id] += output.logprobs
            if output.finish_reason is not None:
                answers.ends[output.request_id] = output
        for name, count in list(marks.items()):
            if len(answers.tokens[name]) >= count and scheduler.preempt(name):
                del marks[name]
        cache.check_integrity()
    assert cache.num_free_blocks == cache.num_usable_blocks and not marks
    assert cache.num_free_states == cache.num_usable_states
    return answers


def _maker(
    drafter: Drafter | None,
    make: Callable[[RowTable, CacheTensors], Drafter] | None,
    tensors: CacheTensors,
) -> Callable[[RowTable], Drafter] | None:
    if make is not None:
        return lambda table: make(table, tensors)
    return (lambda table: drafter) if drafter is not None else None
