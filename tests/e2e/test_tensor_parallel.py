"""`qanat serve --tensor-parallel-size 2` over HTTP: the same answers, and nothing is left when a process dies."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from qanat import LLM, SamplingParams
from tests.e2e.test_processes import LONG_BODY, NOTICE_S, holds_within, is_running
from tests.support.server_process import COMMAND, ServerProcess

pytestmark = pytest.mark.slow
END_S = 30.0
"""A process that ends has its libraries to take down, which takes its time on a busy machine."""

FLAGS = ["--served-model-name", "demo", "--tensor-parallel-size", "2", "--distributed-executor-backend", "mp"]


@pytest.fixture
def server(demo_model: Path) -> Iterator[ServerProcess]:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two ranks need two cores")
    with ServerProcess([str(demo_model), *FLAGS]) as started:
        yield started


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def processes(server: ServerProcess) -> tuple[int, int]:
    """The engine's process, which is rank 0, and that of rank 1."""
    (core,) = server.child_pids()
    (rank,) = children_of(core)
    return core, rank


def ask(server: ServerProcess, **fields: Any) -> dict[str, Any]:
    body = {"model": "demo", "temperature": 0, "max_tokens": 60, **fields}
    response = httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


def test_two_ranks_answer_rightly_with_forms_and_stop_cleanly(server: ServerProcess) -> None:
    core, rank = processes(server)
    question = [{"role": "user", "content": "What is 12 + 7?"}]
    assert "19" in ask(server, messages=question)["message"]["content"]
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    choice = ask(server, messages=question, response_format=form, max_tokens=200)
    assert choice["message"]["content"].lstrip().startswith("{")
    assert f"Rank 1: process {rank} on " in server.output
    assert "[rank 1]" in server.output
    assert server.stop() == 0
    assert not is_running(core) and holds_within(NOTICE_S, lambda: not is_running(rank))
    assert "Traceback" not in server.output


def test_a_killed_rank_fails_its_requests_and_ends_the_engine(server: ServerProcess) -> None:
    core, rank = processes(server)
    with httpx.stream("POST", f"{server.base_url}/v1/completions", json=LONG_BODY, timeout=30) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data:")
        os.kill(rank, signal.SIGKILL)
        killed_s = time.monotonic()
        rest = [line for line in lines if line]
        assert time.monotonic() - killed_s < NOTICE_S
        assert any(
            "engine_dead" in line and f"Rank 1 (process {rank}) was killed by SIGKILL" in line
            for line in rest
        )
    assert holds_within(END_S, lambda: not is_running(core))
    assert f"Rank 1 (process {rank}) was killed by SIGKILL" in server.output
    assert holds_within(END_S, lambda: httpx.get(f"{server.base_url}/health").status_code == 503)


@pytest.mark.parametrize("victim", [0, 1], ids=["core", "server"])
def test_no_rank_outlives_the_core_or_the_server(server: ServerProcess, victim: int) -> None:
    core, rank = processes(server)
    assert server.process is not None
    os.kill((core, server.process.pid)[victim], signal.SIGKILL)
    assert holds_within(NOTICE_S, lambda: not is_running(core) and not is_running(rank))


def test_llm_with_two_ranks_gives_the_tokens_of_one(demo_model: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two ranks need two cores")
    prompts = ["12 + 7 =", "The capital of France is", "a"]
    sampling = SamplingParams(temperature=0.0, max_tokens=24)
    answers = []
    for size in (1, 2):
        with LLM(str(demo_model), dtype="float32", tensor_parallel_size=size) as llm:
            answers.append([one.outputs[0].token_ids for one in llm.generate(prompts, sampling)])
    assert answers[0] == answers[1]


def test_a_backend_of_one_process_is_refused_for_two_ranks(demo_model: Path) -> None:
    command = [*COMMAND, "serve", str(demo_model), "-tp", "2", "--distributed-executor-backend", "uni"]
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two ranks need two cores")
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 2 and "use mp" in result.stderr
