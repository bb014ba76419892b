from __future__ import annotations

import dataclasses
import random
import time
from typing import Any

import pytest

from qanat.cache.manager import HybridCacheManager
from qanat.cache.spec import planned_spec
from qanat.config.resolved import ResolvedConfig
from qanat.core.batch import ScheduledBatch, ScheduledRow, StepOutput, TokenLogprobs
from qanat.core.errors import CapacityError, CheckpointError, IntegrityError
from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason, Request
from qanat.core.sampling_params import SamplingParams
from qanat.executor.base import Executor
from qanat.executor.uniproc import UniprocExecutor
from qanat.scheduler.scheduler import Scheduler
from tests.worker.driver import plain_choices, random_prompt
from tests.worker.tiny_model import tiny_config, tiny_model

SAMPLED = {"temperature": 0.9, "top_k": 40, "min_p": 0.01}


class Loop:
    """The engine's loop with the real scheduler, cache and executor, without processes."""

    def __init__(self, config: ResolvedConfig, executor: Executor | None = None) -> None:
        self.executor: Executor = executor or UniprocExecutor(config)
        plan = self.executor.memory_plan
        spec = planned_spec(config.model, config.cache)
        self.cache = HybridCacheManager(spec, plan.num_blocks, plan.num_states)
        self.scheduler = Scheduler(config.scheduler, self.cache, time.monotonic)
        self.tokens: dict[str, list[int]] = {}
        self.prompt_logprobs: dict[str, list[TokenLogprobs]] = {}
        self.ends: dict[str, RequestOutput] = {}

    def add(
        self, name: str, prompt: list[int], max_tokens: int = 10, *, seed: int = 0, **sampling: Any
    ) -> None:
        settings = SamplingParams(**({"temperature": 0.0, "max_tokens": max_tokens} | sampling))
        self.scheduler.add(
            Request(request_id=name, prompt_token_ids=list(prompt), sampling=settings, seed=seed)
        )
        self.tokens[name], self.prompt_logprobs[name] = [], []

    def step(self) -> None:
        batch = self.scheduler.schedule()
        assert batch is not None
        self.take(self.scheduler.update(batch, self.executor.execute(batch).result()))
        self.cache.check_integrity()

    def run(self) -> None:
        while self.scheduler.has_work:
            self.step()

    def take(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            assert output.request_id not in self.ends
            self.tokens[output.request_id] += output.new_token_ids
            self.prompt_logprobs[output.request_id] += output.prompt_logprobs
            if output.finish_reason is not None:
                self.ends[output.request_id] = output

    def check_idle(self) -> None:
        assert self.cache.num_free_blocks == self.cache.num_usable_blocks
        assert self.cache.num_free_states == self.cache.num_usable_states
        assert set(self.ends) == set(self.tokens)


@pytest.mark.parametrize("family", ["qwen3", "qwen3_5", "qwen3_5_moe"])
@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_preempting_each_other_changes_nothing(family: str, sampling: dict[str, Any]) -> None:
    """ENG-005: six requests that grow to 60 tokens in a pool that holds 160."""
    loop = Loop(tiny_config(family, {"num_blocks_override": 11}, max_num_batched_tokens=24))
    prompts = {f"r{i}": random_prompt(12 + i, i) for i in range(6)}
    for i, (name, prompt) in enumerate(prompts.items()):
        loop.add(name, prompt, 60 - len(prompt), seed=i, **sampling)
    loop.run()
    loop.check_idle()
    assert loop.scheduler.stats().num_preemptions > 0
    model = tiny_model(family)
    for i, (name, prompt) in enumerate(prompts.items()):
        output = loop.tokens[name]
        assert len(output) == 60 - len(prompt)
        assert output == plain_choices(model, prompt, output, seed=i, **sampling), name


def test_forced_preemption_at_any_length() -> None:
    """ENG-005, ENG-026: before the first token, and after 1, 8 and 31, twice each; prompt of two whole blocks."""
    prompt, model = random_prompt(32, 1), tiny_model("qwen3_5")
    for chunk in (64, 7):
        loop = Loop(tiny_config(max_num_batched_tokens=chunk, max_num_seqs=2))
        loop.add("r", prompt, 40, prompt_logprobs=1)
        loop.add("neighbour", random_prompt(9, 2), 70)
        for length in (0, 0, 1, 1, 8, 8, 31, 31):
            while len(loop.tokens["r"]) < length or not loop.scheduler.preempt("r"):
                loop.step()
        loop.run()
        loop.check_idle()
        assert [len(loop.tokens[name]) for name in ("r", "neighbour")] == [40, 70]
        assert loop.tokens["r"] == plain_choices(model, prompt, loop.tokens["r"])
        assert [entry.token_ids[0] for entry in loop.prompt_logprobs["r"]] == prompt[1:]
        neighbour = loop.tokens["neighbour"]
        assert neighbour == plain_choices(model, random_prompt(9, 2), neighbour)


def test_equal_prompts_of_every_length_agree() -> None:
    """ENG-026: lengths 15 to 49, each alone and three at once, in blocks of 16."""
    loop = Loop(tiny_config())
    for length in range(15, 50, 2):
        prompt = random_prompt(length, length)
        loop.add(f"alone{length}", prompt, 4)
        loop.run()
        for copy in range(3):
            loop.add(f"copy{copy}-{length}", prompt, 4)
        loop.run()
        assert {tuple(loop.tokens[f"copy{copy}-{length}"]) for copy in range(3)} == {
            tuple(loop.tokens[f"alone{length}"])
        }
    loop.check_idle()


def test_a_prompt_can_be_evaluated_without_output() -> None:
    loop = Loop(tiny_config(max_num_batched_tokens=8))
    prompt = random_prompt(30, 3)
    loop.add("r", prompt, 0, prompt_logprobs=0)
    loop.run()
    assert loop.ends["r"].finish_reason is FinishReason.LENGTH
    assert loop.tokens["r"] == []
    assert [entry.token_ids for entry in loop.prompt_logprobs["r"]] == [[token] for token in prompt[1:]]


def test_seeds_and_choices_repeat_across_executors() -> None:
    """The same weights and seeds in a second executor give the same bits, batched differently."""
    first, second = Loop(tiny_config()), Loop(tiny_config(max_num_batched_tokens=10, max_num_seqs=2))
    for loop in (first, second):
        for i in range(5):
            loop.add(f"r{i}", random_prompt(11, 1), 12, seed=i, temperature=1.0)
        loop.run()
    assert first.tokens == second.tokens
    assert len({tuple(tokens) for tokens in first.tokens.values()}) == 5


def test_random_arrivals_and_aborts_leave_everything_free() -> None:
    chance = random.Random(4)
    loop = Loop(tiny_config("qwen3_5", {"num_blocks_override": 30}, max_num_batched_tokens=32))
    names = [f"r{i}" for i in range(60)]
    prompts: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        extra: dict[str, Any] = {} if i % 3 else {"temperature": 1.0, "logprobs": 2, "frequency_penalty": 0.5}
        prompts[name] = random_prompt(chance.randint(1, 60), i)
        loop.add(name, prompts[name], chance.randint(1, 25), seed=i, **extra)
        while loop.scheduler.num_waiting > 3:
            loop.step()
        if chance.random() < 0.3:
            ended = loop.scheduler.abort(chance.choice(names[: i + 1]))
            loop.take([ended] if ended is not None else [])
    loop.run()
    loop.check_idle()
    finished = [name for name in names if loop.ends[name].finish_reason is FinishReason.LENGTH]
    assert len(finished) > 20
    for name in finished:
        if int(name[1:]) % 3:
            output = loop.tokens[name]
            assert output == plain_choices(tiny_model("qwen3_5"), prompts[name], output)


def test_a_failed_step_is_in_its_future_and_the_next_one_runs() -> None:
    loop = Loop(tiny_config())
    future = loop.executor.execute(ScheduledBatch(0, [], [], [ScheduledRow(2, 1, [])]))
    assert future.done()
    with pytest.raises(IntegrityError, match="row 2"):
        future.result()
    loop.add("r", [1, 2, 3], 2)
    loop.run()
    assert len(loop.tokens["r"]) == 2


def test_results_are_there_at_once_and_shutdown_repeats() -> None:
    loop = Loop(tiny_config())
    loop.add("r", [1, 2, 3], 2)
    batch = loop.scheduler.schedule()
    assert batch is not None
    future = loop.executor.execute(batch)
    assert future.done()
    assert isinstance(future.result(), StepOutput)
    assert any("paged_attention" in line for line in loop.executor.op_table())
    loop.executor.shutdown()
    loop.executor.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        loop.executor.execute(batch)


def test_what_cannot_start_says_why() -> None:
    config = tiny_config(cache={"kv_cache_memory_bytes": 1})
    with pytest.raises(CapacityError, match="--kv-cache-memory-bytes"):
        UniprocExecutor(config)
    missing = dataclasses.replace(tiny_config(), load_format="auto", model_path="/nonexistent/model")
    with pytest.raises(CheckpointError):
        UniprocExecutor(missing)
