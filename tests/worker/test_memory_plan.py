from __future__ import annotations

import dataclasses
import gc
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from qanat.cache.spec import planned_spec
from qanat.config.model_config import ModelConfig
from qanat.config.resolved import CacheLimits, ResolvedConfig, SchedulerLimits
from qanat.core.batch import NewRow, ScheduledBatch, ScheduledRow
from qanat.core.errors import CapacityError
from qanat.core.memory_plan import Capacity, MemoryPlan
from qanat.core.sampling_params import SamplingParams
from qanat.worker.cache_tensors import allocate_cache
from qanat.worker.memory_plan import max_tokens_that_fit, plan_memory
from qanat.worker.weight_size import weight_bytes
from qanat.worker.worker import Worker
from tests.worker.driver import random_prompt
from tests.worker.tiny_model import CONFIGS, tiny_config

GIB = 2**30
MIB = 2**20


def spec_of(config: ResolvedConfig) -> Any:
    return planned_spec(config.model, config.cache)


@pytest.mark.parametrize("family", list(CONFIGS))
def test_plan_equals_what_is_allocated(family: str) -> None:
    config = tiny_config(family)
    worker = Worker(config)
    worker.load()
    plan = worker.memory_plan
    runner = worker._runner
    assert runner is not None
    assert plan.weight_bytes == runner._passes._model.size_bytes()
    assert plan.blocks_bytes + plan.states_bytes == runner._passes._cache.size_bytes
    assert plan.total_bytes == plan.weight_bytes + plan.workspace_bytes + runner._passes._cache.size_bytes
    # 8 requests of 256 tokens in blocks of 16, and the reserved block and state.
    assert plan.num_blocks == 8 * 16 + 1
    assert plan.num_states == (0 if family == "qwen3" else 9)
    assert {tensor.shape[1] for tensor in runner._passes._cache.kv_blocks} == {plan.num_blocks}
    assert {tensor.shape[0] for tensor in runner._passes._cache.recurrent_states} <= {plan.num_states}


def test_weights_count_each_parameter_in_its_own_type() -> None:
    half = dataclasses.replace(tiny_config(), dtype="bfloat16")
    num_fp32 = 3 * 4  # A_log: one number per value head, in three delta-net layers, stays fp32
    assert weight_bytes(tiny_config()) + 2 * num_fp32 * 2 == 2 * weight_bytes(half)


def test_cache_memory_is_taken_only_when_it_is_written() -> None:
    def resident_bytes() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    spec = spec_of(tiny_config())
    before = resident_bytes()
    cache = allocate_cache(spec, num_blocks=512 * MIB // spec.block_bytes, num_states=2)
    assert cache.size_bytes > 500 * MIB
    assert resident_bytes() - before < 50 * MIB
    assert not cache.kv_blocks[0][:, -1].any()


def plan_for(
    available: int = GIB, weights: int = 10 * MIB, cache: dict[str, Any] | None = None, **limits: Any
) -> MemoryPlan:
    return plan_memory(tiny_config(cache=cache, **limits), available_bytes=available, weight_bytes=weights)


def test_the_share_is_divided_without_remainder_to_speak_of() -> None:
    plan = plan_for(cache={"memory_share": 0.5}, max_model_len=10**5, max_num_seqs=300)
    assert plan.budget_bytes == GIB // 2
    assert plan.total_bytes <= plan.budget_bytes < plan.total_bytes + plan.block_bytes
    assert plan.available_bytes == GIB
    assert plan.num_states == 301


def test_blocks_are_not_more_than_requests_can_use() -> None:
    plan = plan_for(max_model_len=100, max_num_seqs=3)
    assert plan.num_blocks == 3 * 7 + 1
    assert plan.total_bytes < plan.budget_bytes


def test_an_explicit_size_covers_blocks_and_states() -> None:
    plan = plan_for(cache={"kv_cache_memory_bytes": 5 * MIB}, max_num_seqs=4, max_model_len=8192)
    assert plan.blocks_bytes + plan.states_bytes <= 5 * MIB
    assert plan.blocks_bytes + plan.states_bytes + plan.block_bytes > 5 * MIB
    assert plan.budget_bytes == plan.weight_bytes + plan.workspace_bytes + 5 * MIB


def test_an_explicit_number_of_blocks_is_taken_as_it_is() -> None:
    plan = plan_for(cache={"num_blocks_override": 5, "kv_cache_memory_bytes": 5 * MIB})
    assert plan.num_blocks == 5
    assert plan.max_cached_tokens == 64
    assert plan.budget_bytes == plan.total_bytes


SHARE = "--memory-share (or --gpu-memory-utilization)"


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({"weights": GIB}, [SHARE, "--max-num-batched-tokens"]),
        ({"max_num_batched_tokens": 10**6}, [SHARE, "--max-num-batched-tokens"]),
        ({"max_num_seqs": 30_000}, ["--max-num-seqs", SHARE]),
        ({"available": 340 * MIB, "max_model_len": 10**6}, ["--max-model-len", SHARE]),
        ({"cache": {"kv_cache_memory_bytes": 1000}}, ["--max-num-seqs", "--kv-cache-memory-bytes"]),
        (
            {"cache": {"kv_cache_memory_bytes": MIB}, "max_model_len": 4096},
            ["--max-model-len", "--kv-cache-memory-bytes"],
        ),
        ({"cache": {"kv_cache_memory_bytes": 2 * GIB}, "max_num_seqs": 20_000}, ["--kv-cache-memory-bytes"]),
        ({"cache": {"num_blocks_override": 10**6}}, ["--num-gpu-blocks-override"]),
        ({"cache": {"num_blocks_override": 1}}, ["--num-gpu-blocks-override"]),
    ],
)
def test_what_does_not_fit_is_refused_with_the_setting_to_change(
    changes: dict[str, Any], flags: list[str]
) -> None:
    with pytest.raises(CapacityError) as caught:
        plan_for(**changes)
    for flag in flags:
        assert flag in caught.value.message, caught.value.message


@settings(deadline=None)
@given(
    available=st.integers(340 * MIB, 4 * GIB),
    weights=st.integers(0, 100 * MIB),
    share=st.floats(0.2, 0.9),
    block_size=st.sampled_from([16, 32, 64]),
    max_num_seqs=st.integers(1, 400),
    family=st.sampled_from(sorted(CONFIGS)),
)
def test_the_longest_length_that_fits_is_accepted_and_one_more_block_is_not(
    available: int, weights: int, share: float, block_size: int, max_num_seqs: int, family: str
) -> None:
    cache = {"memory_share": share, "block_size": block_size}
    config = tiny_config(family, cache, max_num_seqs=max_num_seqs, max_model_len=10**9)
    machine = {"available_bytes": available, "weight_bytes": weights}
    try:
        fitting = max_tokens_that_fit(config, **machine)
    except CapacityError:
        with pytest.raises(CapacityError):
            plan_memory(tiny_config(family, cache, max_num_seqs=max_num_seqs, max_model_len=1), **machine)
        return
    assert 0 < fitting <= config.model.context_window

    def plan(max_model_len: int) -> MemoryPlan:
        limits = dataclasses.replace(config.scheduler, max_model_len=max_model_len)
        return plan_memory(dataclasses.replace(config, scheduler=limits), **machine)

    accepted = plan(fitting)
    assert accepted.total_bytes <= accepted.budget_bytes <= available
    assert accepted.num_requests_of(fitting) >= 1
    if fitting < config.model.context_window:
        with pytest.raises(CapacityError, match=f"--max-model-len to {fitting} or less"):
            plan(fitting + 1)


def test_requests_of_a_length_are_counted_by_blocks_and_by_rows() -> None:
    plan = plan_for(cache={"num_blocks_override": 41}, max_num_seqs=6, max_model_len=600)
    assert plan.num_requests_of(1) == 6
    assert plan.num_requests_of(16 * 10) == 4
    assert plan.num_requests_of(16 * 10 + 1) == 3
    assert plan.num_requests_of(600) == 1
    assert plan.num_requests_of(601) == 0
    assert plan.capacities() == [Capacity(600, 1)]
    longer = dataclasses.replace(plan, max_model_len=20_000)
    assert [capacity.num_tokens for capacity in longer.capacities()] == [1024, 4096, 16384, 20_000]


WIDE_MODEL = {
    "architectures": ["Qwen3_5MoeForCausalLM"],
    "vocab_size": 5000,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "linear_num_key_heads": 24,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 4,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_no_step_takes_more_than_the_planned_workspace(dtype: str) -> None:
    config = ResolvedConfig(
        model_path="",
        served_model_names=("wide",),
        model=ModelConfig.from_dict(WIDE_MODEL),
        dtype=dtype,
        load_format="dummy",
        scheduler=SchedulerLimits(max_num_batched_tokens=384, max_num_seqs=48, max_model_len=384),
        cache=CacheLimits(block_size=16, kv_cache_dtype=dtype),
    )
    worker = Worker(config)
    worker.load()
    fields = {"temperature": 1.0, "top_p": 0.9, "logprobs": 3, "presence_penalty": 0.5, "prompt_logprobs": 2}

    def enter(row: int, num_tokens: int) -> NewRow:
        blocks = list(range(1 + 24 * row, 1 + 24 * row + 24)) if num_tokens == 384 else [1 + row]
        prompt = [token % 5000 for token in random_prompt(num_tokens, row)]
        return NewRow(row, "r", prompt, num_tokens, 0, SamplingParams(**fields), 0, 0, [], blocks, row + 1)

    one_long = ScheduledBatch(0, [], [enter(0, 384)], [ScheduledRow(0, 384, [])])
    many = ScheduledBatch(
        1, [0], [enter(row, 8) for row in range(48)], [ScheduledRow(row, 8, []) for row in range(48)]
    )
    decode = ScheduledBatch(2, [], [], [ScheduledRow(row, 1, []) for row in range(48)])
    for batch in (one_long, many, decode):
        peak_bytes, left_bytes = measured_peak(worker, batch)
        assert peak_bytes <= worker.memory_plan.workspace_bytes
        assert left_bytes == 0
        assert peak_bytes > MIB  # the measurement sees something


def measured_peak(worker: Worker, batch: ScheduledBatch) -> tuple[int, int]:
    """Most bytes that torch had allocated at one time during a step, and those left after it."""
    gc.collect()  # what an earlier test left in a cycle must not be freed in the middle
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        worker.execute(batch)
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    events = profiler.profiler.kineto_results.events()
    sizes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    running = torch.tensor([size for _, size in sorted(sizes, key=lambda pair: pair[0])]).cumsum(0)
    return int(running.max()), int(running[-1])
