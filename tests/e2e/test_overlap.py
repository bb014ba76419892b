"""`--async-scheduling` through the front door: the demo model says the same with it and without, drafts included."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path
from typing import Any

import httpx
import pytest

from qanat import LLM, SamplingParams
from qanat.kernels.native import module
from tests.e2e.test_speculation import answers
from tests.support.server_process import ServerProcess

DRAFTS = {"method": "qwen3_5_mtp", "num_speculative_tokens": 3, "adaptive": False}


@pytest.fixture(autouse=True)
def _native() -> None:
    if not module.is_built():
        pytest.skip(module.why_not())


@pytest.mark.parametrize("speculation", [None, DRAFTS], ids=["plain", "mtp"])
def test_it_changes_nothing(demo_model: Path, speculation: dict[str, Any] | None) -> None:
    off, plain_counts = answers(demo_model, speculation, async_scheduling=False)
    on, counts = answers(demo_model, speculation, async_scheduling=True)
    assert on == off
    assert (counts.num_drafts > 0) == (plain_counts.num_drafts > 0) == (speculation is not None)


def test_a_server_with_it_answers_like_an_engine_without(demo_model: Path) -> None:
    prompts = [f"What is {number} + {number + 7}?" for number in range(12)]
    with LLM(str(demo_model), async_scheduling=False, num_threads=1) as model:
        params = SamplingParams(max_tokens=40, temperature=0, repetition_penalty=1.3)
        expected = [reply.outputs[0].text for reply in model.generate(prompts, params)]
    with ServerProcess(
        [str(demo_model), "--served-model-name", "demo", "--async-scheduling", "--num-threads", "1"]
    ) as server:
        plan = httpx.get(f"{server.base_url}/v1/plan", timeout=60).json()
        assert plan["settings"]["scheduler"]["is_overlapped"] is True

        def ask(prompt: str) -> str:
            body = {
                "model": "demo",
                "prompt": prompt,
                "max_tokens": 40,
                "temperature": 0,
                "repetition_penalty": 1.3,
            }
            response = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
            return str(response.json()["choices"][0]["text"])

        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as callers:
            assert list(callers.map(ask, prompts)) == expected
