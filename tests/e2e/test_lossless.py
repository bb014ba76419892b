"""Promise 1 on the native kernels: what a request gets does not depend on what else happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qanat import LLM, SamplingParams
from qanat.kernels.native import module
from qanat.kernels.providers import choose_providers
from qanat.kernels.registry import REFERENCE

PROMPTS = [
    "What is 2 + 3?",
    *(f"{i} plus {i} is" for i in range(4)),
    "The future of AI is",
    "Write the word water three times. " * 8,
]
NUM_TOKENS = 12

Answer = tuple[list[int], list[int], str]
"""Prompt ids, output ids, log-probabilities to the last bit."""


@pytest.fixture(autouse=True)
def _usual_providers_afterwards() -> Iterator[None]:
    if not module.is_built():
        pytest.skip(module.why_not())
    yield
    choose_providers(1, REFERENCE)


def ask(model: LLM, prompts: list[str] | list[list[int]], max_tokens: int = NUM_TOKENS) -> list[Answer]:
    params = SamplingParams(max_tokens=max_tokens, temperature=0, logprobs=2, ignore_eos=True)
    results = model.generate(prompts, params)
    return [
        (list(r.prompt_token_ids), list(r.outputs[0].token_ids), repr(r.outputs[0].logprobs)) for r in results
    ]


def open_model(folder: Path, dtype: str, cache_dtype: str = "auto", **options: int) -> LLM:
    settings = {"max_model_len": 1024, "max_num_seqs": 8, "num_threads": 1} | options
    return LLM(str(folder), dtype=dtype, kv_cache_dtype=cache_dtype, **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "cache"), [("float32", "auto"), ("bfloat16", "auto"), ("bfloat16", "int8")]
)
def test_same_bits_in_every_company(
    demo_model: Path, dtype: str, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    *others, best = module.instruction_sets()
    monkeypatch.setenv("QANAT_ISA", best)
    with open_model(demo_model, dtype, cache) as model:
        batch = ask(model, PROMPTS)
        assert [answer for prompt in PROMPTS for answer in ask(model, [prompt])] == batch, "alone"
        resumed = ask(model, [ids + tokens[:5] for ids, tokens, _ in batch], NUM_TOKENS - 5)
        assert [tokens for _, tokens, _ in resumed] == [tokens[5:] for _, tokens, _ in batch], "resumed"
    with open_model(
        demo_model, dtype, cache, max_num_batched_tokens=16, max_num_seqs=4, num_threads=2
    ) as model:
        assert ask(model, PROMPTS) == batch, "in chunks of 16, on two threads"
    for name in others:
        monkeypatch.setenv("QANAT_ISA", name)
        with open_model(demo_model, dtype, cache) as model:
            assert ask(model, PROMPTS) == batch, name


@pytest.mark.slow
def test_same_tokens_as_the_reference(demo_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in (module.instruction_sets()[-1], "reference"):
        monkeypatch.setenv("QANAT_ISA", name)
        with open_model(demo_model, "float32") as model:
            found.append([tokens for _, tokens, _ in ask(model, PROMPTS)])
    assert found[0] == found[1]
