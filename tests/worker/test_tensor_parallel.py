"""Ranks that share a model choose the tokens that one rank chooses, whatever the family and the number of ranks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from qanat.config.model_config import ModelConfig
from qanat.config.resolved import ResolvedConfig
from qanat.core.batch import NewRow, ScheduledBatch, ScheduledRow, TokenLogprobs
from qanat.core.sampling_params import SamplingParams
from qanat.kernels.native.module import is_built
from qanat.platforms.groups import ParallelGroup
from qanat.worker.worker import Worker
from tests.support.rank_threads import on_ranks
from tests.worker.driver import random_prompt
from tests.worker.tiny_model import CONFIGS, tiny_config

MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
FAMILIES = {
    **CONFIGS,
    "qwen3_moe": ModelConfig.from_dict(
        {
            "architectures": ["Qwen3MoeForCausalLM"],
            "vocab_size": 96,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 4096,
            "eos_token_id": 5,
            "rope_theta": 10000.0,
            "decoder_sparse_step": 2,
            **MOE,
        }
    ),
}
PROMPT_LENGTHS = (1, 7, 40)
NUM_STEPS = 12

Answers = dict[int, tuple[list[int], list[TokenLogprobs]]]
"""By row: its tokens, and the log-probabilities of its prompt and output."""


def config_of(family: str, size: int, **changes: Any) -> ResolvedConfig:
    config = tiny_config("qwen3", {"num_blocks_override": 40})
    return dataclasses.replace(config, model=FAMILIES[family], tensor_parallel_size=size, **changes)


def generate(config: ResolvedConfig, group: ParallelGroup, is_profiled: bool = False) -> Answers:
    """Greedy answers to three prompts that run together, the longest prompt in two pieces."""
    worker = Worker(config, group=group)
    worker.load()
    if is_profiled:
        worker.profiler.start()
    return play(worker)


def play(worker: Worker) -> Answers:
    """What `generate` says, on a worker that is loaded."""
    new_rows, rows = [], []
    for row, length in enumerate(PROMPT_LENGTHS):
        sampling = SamplingParams(temperature=0.0, max_tokens=99, logprobs=3, prompt_logprobs=1)
        blocks = [1 + 4 * row + i for i in range(4)]
        prompt = random_prompt(length, row)
        new_rows.append(NewRow(row, f"r{row}", prompt, length, 0, sampling, 0, 0, [], blocks, row + 1))
        rows.append(ScheduledRow(row, min(length, 25), []))
    batches = [ScheduledBatch(0, [], new_rows, rows)]
    batches.append(
        ScheduledBatch(1, [], [], [ScheduledRow(0, 1, []), ScheduledRow(1, 1, []), ScheduledRow(2, 15, [])])
    )
    batches += [
        ScheduledBatch(i, [], [], [ScheduledRow(row, 1, []) for row in range(3)]) for i in range(2, NUM_STEPS)
    ]
    answers: Answers = {row: ([], []) for row in range(3)}
    for batch in batches:
        for output in worker.execute(batch).rows:
            assert not output.error
            tokens, logprobs = answers[output.row]
            tokens += output.token_ids
            logprobs += [*output.prompt_logprobs, *output.logprobs]
    return answers


@pytest.mark.parametrize("family", FAMILIES)
def test_eng_015_two_and_four_ranks_answer_like_one(family: str) -> None:
    """ENG-015: key-value heads and key heads of the delta net are fewer than four ranks and held twice."""
    alone = on_ranks(1, lambda group: generate(config_of(family, 1), group))[0]
    for size in (2, 4):
        shared = on_ranks(size, lambda group, size=size: generate(config_of(family, size), group))  # type: ignore[misc]
        for row, (tokens, logprobs) in alone.items():
            assert len(tokens) == NUM_STEPS - (row == 2)
            assert shared[0][row][0] == tokens
            ours = [value for entry in shared[0][row][1] for value in entry.logprobs]
            theirs = [value for entry in logprobs for value in entry.logprobs]
            torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), atol=1e-4, rtol=0)


NATIVE_ONLY = pytest.mark.skipif(
    not is_built(), reason="the references do not cut sums into segments (rule R12)"
)
FORMATS = [("float32", ""), ("bfloat16", ""), ("bfloat16", "w8a8")]


@NATIVE_ONLY
@pytest.mark.parametrize(("dtype", "quantization"), FORMATS)
@pytest.mark.parametrize("family", [family for family, model in FAMILIES.items() if model.moe is None])
def test_native_kernels_give_the_same_bits_on_one_two_and_four_ranks(
    family: str, dtype: str, quantization: str
) -> None:
    """Rule R12; experts are left out, whose results each rank has added up before they are exchanged."""
    alone, *shared = (
        on_ranks(
            size,
            lambda group, size=size: generate(  # type: ignore[misc]
                config_of(family, size, dtype=dtype, quantization=quantization), group
            ),
        )[0]
        for size in (1, 2, 4)
    )
    assert shared == [alone, alone]


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_layouts_give_equal_bits(family: str) -> None:
    runs = [on_ranks(2, lambda group: generate(config_of(family, 2), group))[0] for _ in range(2)]
    assert runs[0] == runs[1]
