"""Promise 1 on the native kernels: what a request gets does not depend on what else happens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from qanat.kernels.native import module

PROMPTS = [
    "What is 2 + 3?",
    *(f"{i} plus {i} is" for i in range(6)),
    "The future of AI is",
    "Write the word water three times. " * 12,
]

SCRIPT = """
import sys
import msgspec
from qanat import LLM, SamplingParams

folder, dtype, prompts = sys.argv[1], sys.argv[2], msgspec.json.decode(sys.argv[3])

def answers(way, prompts, max_tokens=20, start=lambda prompt: prompt, **options):
    params = SamplingParams(max_tokens=max_tokens, temperature=0, logprobs=2, ignore_eos=True)
    settings = {"max_model_len": 1024, "max_num_seqs": 16, "num_threads": 1} | options
    with LLM(folder, dtype=dtype, **settings) as model:
        groups = [[prompt] for prompt in prompts] if way == "alone" else [prompts]
        found = [result for group in groups for result in model.generate(group, params)]
    return [(r.prompt_token_ids, r.outputs[0].token_ids, repr(r.outputs[0].logprobs)) for r in found]

batch = answers("batch", prompts)
resumed = answers("batch", [ids + tokens[:7] for ids, tokens, _ in batch], max_tokens=13)
print(msgspec.json.encode({
    "batch": batch,
    "alone": answers("alone", prompts),
    "chunked": answers("batch", prompts, max_num_batched_tokens=16, max_num_seqs=4),
    "threads": answers("batch", prompts, num_threads=2),
    "resumed_tokens": [tokens for _, tokens, _ in resumed],
}).decode())
"""


def answers(folder: Path, dtype: str, instruction_set: str) -> dict[str, list]:
    """What a process says that is forced to this instruction set."""
    arguments = [str(folder), dtype, msgspec.json.encode(PROMPTS).decode()]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env=os.environ | {"QANAT_ISA": instruction_set},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return msgspec.json.decode(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_same_bits_in_every_company(demo_model: Path, dtype: str) -> None:
    if not module.is_built():
        pytest.skip(module.why_not())
    by_set = {name: answers(demo_model, dtype, name) for name in module.instruction_sets()}
    for name, found in by_set.items():
        for way in ("alone", "chunked", "threads"):
            assert found[way] == found["batch"], f"{name}: {way}"
        assert found["resumed_tokens"] == [tokens[7:] for _, tokens, _ in found["batch"]], name
        assert found["batch"] == by_set["scalar"]["batch"], name
    if dtype == "float32":
        reference = answers(demo_model, dtype, "reference")["batch"]
        ours = [tokens for _, tokens, _ in by_set["scalar"]["batch"]]
        assert ours == [tokens for _, tokens, _ in reference]
