"""Speculation through the front door: the demo model's own draft layer, and n-grams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qanat import LLM, SamplingParams, StructuredOutputsParams
from qanat.core.speculation import SpeculationCounts
from qanat.kernels.native import module

QUESTIONS = ["What is 417 + 385?", "Sort these words: pear apple fig.", "Hello!"]
FORM = StructuredOutputsParams(regex=r"[0-9]{2,4} and [a-z]{3,9}")
SETTINGS = [
    SamplingParams(max_tokens=60, temperature=0, logprobs=2),
    SamplingParams(max_tokens=24, temperature=0.9, seed=11, presence_penalty=0.6, n=2, logprobs=1),
    SamplingParams(max_tokens=24, temperature=0.8, seed=3, structured_outputs=FORM),
    SamplingParams(max_tokens=40, temperature=0, stop=["="], min_tokens=4),
]


def answers(
    folder: Path, speculation: dict[str, Any] | None, **options: Any
) -> tuple[list[str], SpeculationCounts]:
    """Everything that is said, and what became of drafts."""
    settings = {"max_model_len": 512, "max_num_seqs": 8, "num_threads": 1} | options
    said = []
    with LLM(str(folder), speculative_config=speculation, **settings) as model:
        conversations = [[{"role": "user", "content": text}] for text in QUESTIONS]
        for params in SETTINGS:
            for reply in model.chat(conversations, params):
                said += [
                    repr((one.token_ids, one.text, one.logprobs, one.finish_reason)) for one in reply.outputs
                ]
        return said, model.speculation_counts()


def acceptance(counts: SpeculationCounts) -> float:
    """Of the first draft."""
    return counts.accepted_per_position[0] / counts.num_drafts


@pytest.fixture(autouse=True)
def _native() -> None:
    if not module.is_built():
        pytest.skip(module.why_not())


def test_drafts_change_nothing_but_the_number_of_steps(demo_model: Path) -> None:
    plain, none = answers(demo_model, None)
    assert none == SpeculationCounts()
    speculation = {"method": "qwen3_5_mtp", "num_speculative_tokens": 3, "adaptive": False}
    drafted, counts = answers(demo_model, speculation)
    assert drafted == plain
    assert acceptance(counts) > 0.8
    found, counts = answers(
        demo_model, {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2}
    )
    assert found == plain and counts.num_draft_tokens > 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mtp", "ngram"])
def test_ranks_draft_together(demo_model: Path, method: str) -> None:
    """Rank 0 chooses the tokens; all draft the same, and end a row of accepted drafts at the same place."""
    plain, _ = answers(demo_model, None, tensor_parallel_size=2)
    speculation = {"method": method, "num_speculative_tokens": 3, "adaptive": False}
    drafted, counts = answers(demo_model, speculation, tensor_parallel_size=2)
    assert drafted == plain
    assert counts.num_accepted_tokens > 0


def continued(folder: Path, **options: Any) -> tuple[list[str], int]:
    """Long outputs, and what follows them when they are prompts themselves; and how many tokens were cached."""
    settings = {"max_model_len": 1024, "max_num_seqs": 8, "num_threads": 1} | options
    long = SamplingParams(max_tokens=150, temperature=0.7, seed=5, ignore_eos=True, logprobs=1)
    said, num_cached = [], 0
    with LLM(str(folder), **settings) as model:
        for first in model.generate(["Sort: pear, apple", "17 + 25 ="], long):
            for end in (64, 100, 149):
                prompt = [*first.prompt_token_ids, *first.outputs[0].token_ids[:end]]
                [then] = model.generate([prompt], SamplingParams(max_tokens=20, temperature=0, logprobs=1))
                said.append(
                    repr((first.outputs[0].token_ids, then.outputs[0].token_ids, then.outputs[0].logprobs))
                )
                num_cached += then.num_cached_tokens
    return said, num_cached


@pytest.mark.slow
@pytest.mark.parametrize("is_overlapped", [False, True])
def test_states_that_are_kept_have_absorbed_what_was_accepted(demo_model: Path, is_overlapped: bool) -> None:
    """Prefixes are kept while rows of drafts are held back, also at ends of output, as many as without drafts."""
    plain, _ = continued(demo_model, enable_prefix_caching=False)
    _, num_cached_without_drafts = continued(demo_model)
    speculation = {"method": "mtp", "num_speculative_tokens": 3, "adaptive": False}
    drafted, num_cached = continued(
        demo_model, speculative_config=speculation, async_scheduling=is_overlapped
    )
    assert drafted == plain
    assert num_cached == num_cached_without_drafts > 0


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["w8a8", "w4a8"])
def test_eng_022_quantised_draft_layers_draft_as_well(demo_model: Path, scheme: str) -> None:
    speculation = {"method": "mtp", "num_speculative_tokens": 1, "adaptive": False}
    _, plain = answers(demo_model, speculation)
    _, quantised = answers(demo_model, speculation, quantization=scheme)
    assert acceptance(quantised) > acceptance(plain) - 0.05
