"""The scheduler drives the real model runner: what is preempted, chunked or crowded yields the same tokens.

The model is a tiny hybrid with random fp32 weights. Caches start as NaN, so that reads of unwritten places show.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from qanat.cache.manager import HybridCacheManager
from qanat.cache.spec import cache_spec
from qanat.config.resolved import SchedulerLimits
from qanat.core.request import FinishReason
from qanat.scheduler.scheduler import Scheduler
from qanat.worker.cache_tensors import allocate_cache
from qanat.worker.model_runner import ModelRunner, RunnerLimits
from tests.support.fake_clock import FakeClock
from tests.support.step_loop import make_request
from tests.worker.tiny_model import VOCAB_SIZE, tiny_model

BLOCK_SIZE = 16
LIMITS = SchedulerLimits(max_num_batched_tokens=256, max_num_seqs=6, max_model_len=512)


def generate(
    prompts: dict[str, list[int]],
    max_tokens: int,
    *,
    num_blocks: int = 100,
    preempt_at: dict[str, list[int]] | None = None,
    limits: SchedulerLimits = LIMITS,
    **sampling: float,
) -> tuple[dict[str, list[int]], int]:
    """Every request's tokens, and how many preemptions there were."""
    model = tiny_model("qwen3_5")
    spec = cache_spec(model.config, block_size=BLOCK_SIZE, kv_dtype="float32")
    num_states = limits.max_num_seqs + 1
    tensors = allocate_cache(spec, num_blocks=num_blocks + 1, num_states=num_states)
    for tensor in [*tensors.kv_blocks, *tensors.conv_states, *tensors.recurrent_states]:
        tensor.fill_(torch.nan)
    runner = ModelRunner(model, tensors, RunnerLimits(limits.max_num_seqs, 32, BLOCK_SIZE, 64, VOCAB_SIZE))
    cache = HybridCacheManager(spec, num_blocks + 1, num_states)
    scheduler = Scheduler(limits, cache, FakeClock())
    for name, prompt in prompts.items():
        scheduler.add(make_request(name, prompt, max_tokens, request_seed=len(name), **sampling))
    tokens: dict[str, list[int]] = {name: [] for name in prompts}
    marks = {name: list(counts) for name, counts in (preempt_at or {}).items()}
    while scheduler.has_work:
        batch = scheduler.schedule()
        assert batch is not None
        for output in scheduler.update(batch, runner.run(batch)):
            tokens[output.request_id] += output.new_token_ids
            assert output.finish_reason in (None, FinishReason.LENGTH), output.error_message
        for name, left in marks.items():
            if left and len(tokens[name]) >= left[0] and scheduler.preempt(name):
                left.pop(0)
        cache.check_integrity()
    assert cache.usage == cache.state_usage == 0.0
    return tokens, scheduler.stats().num_preemptions


def random_prompts(num_prompts: int, num_tokens: int) -> dict[str, list[int]]:
    generator = torch.Generator().manual_seed(num_tokens)
    ids = torch.randint(6, VOCAB_SIZE, (num_prompts, num_tokens), generator=generator).tolist()
    return {"r" * (index + 1): row for index, row in enumerate(ids)}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_eng_005_a_pool_too_small_for_six_requests(temperature: float) -> None:
    prompts = random_prompts(6, 30)
    wide, _ = generate(prompts, 36, temperature=temperature)
    narrow, num_preemptions = generate(prompts, 36, num_blocks=18, temperature=temperature)
    assert num_preemptions > 0
    assert narrow == wide


@pytest.mark.parametrize("is_chunked_prefill_enabled", [True, False])
def test_eng_005_preempted_after_1_8_and_31_tokens(is_chunked_prefill_enabled: bool) -> None:
    prompts = random_prompts(4, 70)  # with 100 tokens per step, a chunk of 64 and the rest
    limits = replace(
        LIMITS,
        max_num_batched_tokens=100,
        is_chunked_prefill_enabled=is_chunked_prefill_enabled,
        max_decode_stall_s=0.0,
    )
    undisturbed, _ = generate(prompts, 36, temperature=0.0)
    preempt_at = {"r": [1, 8], "rr": [8, 31], "rrr": [31, 35]}
    disturbed, num_preemptions = generate(prompts, 36, limits=limits, preempt_at=preempt_at, temperature=0.0)
    assert num_preemptions == 6
    assert disturbed == undisturbed


def test_eng_026_prompt_lengths_around_block_boundaries() -> None:
    for num_tokens in (15, 16, 17, 31, 32, 33, 48):
        prompt = random_prompts(1, num_tokens)["r"]
        alone, _ = generate({"r": prompt}, 3, temperature=0.0)
        together, _ = generate({"a": prompt, "b": prompt, "c": prompt}, 3, temperature=0.0)
        assert together == {name: alone["r"] for name in "abc"}
