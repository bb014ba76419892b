"""Native kernels and references agree on every token of the demo model; `tests/matrix` compares ways of serving."""

from __future__ import annotations

from pathlib import Path

import pytest

from qanat import LLM, SamplingParams
from qanat.kernels.native import module
from tests.support.providers import built_kernels  # noqa: F401

PROMPTS = [
    "What is 2 + 3?",
    *(f"{i} plus {i} is" for i in range(4)),
    "The future of AI is",
    "Write the word water three times. " * 8,
]


@pytest.mark.slow
def test_same_tokens_as_the_reference(demo_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
    found = []
    for name in (module.instruction_sets()[-1], "reference"):
        monkeypatch.setenv("QANAT_ISA", name)
        with LLM(str(demo_model), dtype="float32", max_model_len=1024, num_threads=1) as model:
            found.append([result.outputs[0].token_ids for result in model.generate(PROMPTS, params)])
    assert found[0] == found[1]
