"""Graphs through the front door: the same stream with and without them, and figures that tell which ran."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from qanat.kernels.native.module import is_built
from tests.support.server_process import ServerProcess

BODY = {
    "model": "demo",
    "prompt": ["What is 2 + 3?", "Sort: 5, 3, 9", "The future"],
    "max_tokens": 24,
    "temperature": 0,
    "ignore_eos": True,
    "logprobs": 2,
}


def answers(server: ServerProcess) -> list[object]:
    response = httpx.post(f"{server.base_url}/v1/completions", json=BODY, timeout=60)
    return [(choice["text"], choice["logprobs"]) for choice in response.json()["choices"]]


def count(server: ServerProcess, pattern: str) -> float:
    text = server.get("/metrics").text
    return sum(float(value) for value in re.findall(rf"^qanat:{pattern} (\S+)$", text, re.MULTILINE))


@pytest.mark.skipif(not is_built(), reason="graphs are made of native ops")
def test_graphs_change_nothing_but_how_steps_run(demo_server: ServerProcess, demo_model: Path) -> None:
    replays = r'graph_replays_total\{.*kind="full".*\}'
    before = count(demo_server, replays)
    usual = answers(demo_server)
    assert count(demo_server, replays) > before
    assert count(demo_server, r"graph_captures_total\{.*\}") >= 1
    assert count(demo_server, r"step_arena_misses_total\{.*\}") == 0, "the arena is as large as the plan says"
    with ServerProcess([str(demo_model), "--served-model-name", "demo", "--enforce-eager"]) as eager:
        assert answers(eager) == usual
        assert count(eager, replays) == 0
        assert count(eager, r'eager_decode_steps_total\{.*reason="no_graphs".*\}') > 0
