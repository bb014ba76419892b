"""Drives a `ModelRunner` step by step, with full control over rows, blocks and states, and the plain loop beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from qanat.cache.spec import cache_spec
from qanat.config.graphs import GraphSettings
from qanat.core.batch import GraphUse, NewRow, RowOutput, ScheduledBatch, ScheduledRow
from qanat.core.constraint import Constraint, MatcherFactory
from qanat.core.sampling_params import SamplingParams
from qanat.models.decoder import CausalLM
from qanat.worker.cache_tensors import allocate_cache
from qanat.worker.graphs.maker import NativeGraphMaker
from qanat.worker.model_runner import ModelRunner, RunnerLimits
from qanat.worker.row_state import RowState
from qanat.worker.sampler import sample_tokens
from tests.support.forward import ForwardRunner
from tests.worker.tiny_model import VOCAB_SIZE, tiny_model

BLOCK_SIZE = 16
NUM_ROWS = 9


@dataclass
class Running:
    """A request as the driver, in the scheduler's place, knows it."""

    new_row: NewRow
    blocks: list[int]
    tokens: list[int]
    num_computed: int
    is_entered: bool = False
    outputs: list[RowOutput] = field(default_factory=list)

    @property
    def output(self) -> list[int]:
        return self.tokens[self.new_row.num_prompt_tokens :]

    @property
    def num_missing(self) -> int:
        return len(self.tokens) - self.num_computed


class Driver:
    """Gives out the lowest free row, block and state, so that what one request leaves the next one gets.

    The caches start as NaN: reading what this request has not written shows.
    """

    def __init__(
        self,
        family: str = "qwen3_5",
        *,
        matcher_factory: MatcherFactory | None = None,
        model: CausalLM | None = None,
        graphs: GraphSettings | None = None,
        **limits: Any,
    ) -> None:
        self.model = model or tiny_model(family)
        spec = cache_spec(self.model.config, block_size=BLOCK_SIZE, kv_dtype="float32")
        self.cache = allocate_cache(spec, num_blocks=80, num_states=NUM_ROWS + 1 if spec.has_states else 0)
        for tensor in [*self.cache.kv_blocks, *self.cache.conv_states, *self.cache.recurrent_states]:
            tensor.fill_(torch.nan)
        defaults = {
            "num_rows": NUM_ROWS,
            "max_blocks_per_row": 32,
            "block_size": BLOCK_SIZE,
            "logits_chunk_rows": 64,
        }
        self.limits = RunnerLimits(**(defaults | {"num_valid_token_ids": VOCAB_SIZE} | limits))
        maker = NativeGraphMaker(2**22) if graphs is not None and graphs.sizes else None
        self.runner = ModelRunner(
            self.model, self.cache, self.limits, matcher_factory, graphs=graphs, maker=maker
        )
        self.has_states = spec.has_states
        self.free_rows, self.free_blocks, self.free_states = (
            list(range(NUM_ROWS)),
            list(range(1, 80)),
            list(range(1, NUM_ROWS + 1)),
        )
        self.running: dict[str, Running] = {}
        self.freed: list[int] = []
        self.step_id = 0
        self.uses: list[GraphUse] = []

    def add(
        self,
        name: str,
        prompt: Sequence[int],
        output: Sequence[int] = (),
        *,
        seed: int = 0,
        stop_token_ids: Sequence[int] = (),
        constraint: Constraint | None = None,
        **sampling: Any,
    ) -> None:
        """A request for the next step; greedy unless `sampling` says otherwise."""
        tokens = [*prompt, *output]
        new_row = NewRow(
            row=self.free_rows.pop(0),
            request_id=name,
            token_ids=tokens,
            num_prompt_tokens=len(prompt),
            num_computed_tokens=0,
            sampling=SamplingParams(**({"temperature": 0.0, "max_tokens": 999} | sampling)),
            seed=seed,
            choice_index=0,
            stop_token_ids=list(stop_token_ids),
            block_ids=[],
            state_id=self.free_states.pop(0) if self.has_states else 0,
            constraint=constraint,
        )
        self.running[name] = Running(new_row, [], list(tokens), 0)

    def release(self, name: str) -> Running:
        """Finishes, aborts or preempts a request."""
        request = self.running.pop(name)
        self.freed.append(request.new_row.row)
        self.free_rows = sorted([*self.free_rows, request.new_row.row])
        self.free_blocks = sorted([*self.free_blocks, *request.blocks])
        if self.has_states:
            self.free_states = sorted([*self.free_states, request.new_row.state_id])
        return request

    def step(self, work: Mapping[str, int]) -> dict[str, RowOutput]:
        """Computes so many tokens of each of these requests."""
        new_rows, rows = [], []
        for name, num_tokens in work.items():
            request = self.running[name]
            new_blocks = self._reserve(request, request.num_computed + num_tokens)
            if not request.is_entered:
                request.is_entered = True
                fields = {f: getattr(request.new_row, f) for f in NewRow.__struct_fields__}
                new_rows.append(NewRow(**(fields | {"block_ids": list(request.blocks)})))
                new_blocks = []
            rows.append(ScheduledRow(request.new_row.row, num_tokens, new_blocks))
            request.num_computed += num_tokens
        freed, self.freed = self.freed, []
        output = self.runner.run(ScheduledBatch(self.step_id, freed, new_rows, rows))
        assert output.step_id == self.step_id and output.graph is not None
        self.uses.append(output.graph)
        self.step_id += 1
        answers = dict(zip(work, output.rows, strict=True))
        for name, answer in answers.items():
            request = self.running[name]
            assert answer.row == request.new_row.row
            request.tokens += answer.token_ids
            request.outputs.append(answer)
        return answers

    def step_all(self) -> dict[str, RowOutput]:
        """All that is known of every request: whole prompts, then token by token."""
        return self.step({name: request.num_missing for name, request in self.running.items()})

    def generate(self, name: str, num_tokens: int) -> list[int]:
        """Steps everything until this request has so much output."""
        while len(self.running[name].output) < num_tokens:
            self.step_all()
        return self.running[name].output[:num_tokens]

    def _reserve(self, request: Running, num_tokens: int) -> list[int]:
        new_blocks = []
        while (len(request.blocks) + len(new_blocks)) * BLOCK_SIZE < num_tokens:
            new_blocks.append(self.free_blocks.pop(0))
        request.blocks += new_blocks
        return new_blocks


def full_logits(model: CausalLM, tokens: Sequence[int]) -> Tensor:
    """[T, V]: one forward pass over the whole sequence, on caches of its own."""
    return ForwardRunner(model).step([("r", list(tokens))])[0]


def plain_choices(
    model: CausalLM, prompt: Sequence[int], output: Sequence[int], *, seed: int = 0, **sampling: Any
) -> list[int]:
    """What the obvious loop, with the whole sequence again for each token, chooses at every place of the output.

    One pass over prompt and output gives the scores before each of its tokens. If the choices are the output, then,
    token by token, the output is what that loop yields.
    """
    settings = SamplingParams(**({"temperature": 0.0, "max_tokens": 999} | sampling))
    tokens = [*prompt, *output]
    logits = full_logits(model, tokens[:-1])[len(prompt) - 1 :]
    lengths = range(len(prompt), len(tokens))
    rows = [
        RowState(NewRow(0, "r", tokens[:length], len(prompt), 0, settings, seed, 0, [], [], 0), VOCAB_SIZE)
        for length in lengths
    ]
    return sample_tokens(logits, rows)


def plain_output(
    model: CausalLM, prompt: Sequence[int], num_tokens: int, *, seed: int = 0, **sampling: Any
) -> list[int]:
    """That loop itself."""
    output: list[int] = []
    while len(output) < num_tokens:
        output.append(plain_choices(model, prompt, [*output, 0], seed=seed, **sampling)[-1])
    return output


def random_prompt(length: int, seed: int) -> list[int]:
    return torch.randint(0, VOCAB_SIZE, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
