"""A processor without vector instructions: a server with `QANAT_ISA=scalar` answers, and with the same tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from qanat.kernels.native.module import instruction_sets, is_built
from tests.support.server_process import ServerProcess

PROMPTS = ["What is 2 + 3?", "Sort in ascending order: 8, 5, 99"]


def tokens(model: Path, instruction_set: str, flags: list[str]) -> list[list[int]]:
    """What a server with that instruction set answers."""
    arguments = [str(model), "--served-model-name", "demo", "--max-num-seqs", "2", "--max-model-len", "256"]
    with ServerProcess([*arguments, *flags], environment={"QANAT_ISA": instruction_set}) as server:
        body = {"model": "demo", "prompt": PROMPTS, "temperature": 0, "max_tokens": 16, "ignore_eos": True}
        reply = server.post("/v1/completions", {**body, "return_token_ids": True})
        assert reply.status_code == 200, reply.text
        assert f"Kernels: native, {instruction_set} (of " in server.output
        return [choice["token_ids"] for choice in reply.json()["choices"]]


@pytest.mark.slow
@pytest.mark.skipif(not is_built(), reason="the instruction sets are those of the native kernels")
@pytest.mark.parametrize("flags", [[], ["--quantization", "w8a8"], ["--quantization", "w4a8"]])
def test_a_server_without_vector_instructions_answers_alike(demo_model: Path, flags: list[str]) -> None:
    worst, best = instruction_sets()[0], instruction_sets()[-1]
    assert worst == "scalar"
    assert tokens(demo_model, worst, flags) == tokens(demo_model, best, flags)
