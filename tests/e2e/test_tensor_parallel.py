"""`qanat serve --tensor-parallel-size 2` over HTTP: the same answers, and nothing is left when a process dies."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from qanat import LLM, SamplingParams
from tests.e2e.test_processes import LONG_BODY, NOTICE_S, holds_within, is_running
from tests.netns import Host, namespaces
from tests.support.server_process import COMMAND, ServerProcess, free_port

pytestmark = pytest.mark.slow
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
    with httpx.stream(
        "POST", f"{server.base_url}/v1/completions", json=LONG_BODY, timeout=NOTICE_S
    ) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data:")
        os.kill(rank, signal.SIGKILL)
        rest = [line for line in lines if line]
        assert any(
            "engine_dead" in line and f"Rank 1 (process {rank}) was killed by SIGKILL" in line
            for line in rest
        )
    assert holds_within(NOTICE_S, lambda: not is_running(core))
    assert f"Rank 1 (process {rank}) was killed by SIGKILL" in server.output
    assert holds_within(NOTICE_S, lambda: server.get("/health").status_code == 503)


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


class TwoHosts:
    """`qanat serve` on one host, and the second rank's process on another; both end with the `with` block."""

    def __init__(self, hosts: list[Host], model: Path, log: Path, environment: dict[str, str]) -> None:
        self.here, self.there = hosts
        place = ["-tp", "2", "--nnodes", "2", "--master-addr", self.here.address]
        arguments = [str(model), "--served-model-name", "demo", *place]
        inside = self.here.command([*COMMAND, "serve"])
        self.server = ServerProcess(arguments, command=inside, environment=environment)
        with log.open("w") as file:
            self.node = self.there.start(
                [*COMMAND, "serve", *arguments, "--node-rank", "1", "--headless"],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            )

    def __enter__(self) -> TwoHosts:
        with self.here.inside():
            self.server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__(None, None, None)
        self.node.kill()
        self.node.wait()


def completion(server: ServerProcess) -> dict[str, Any]:
    body = {
        "model": "demo",
        "prompt": "The capital of France is",
        "temperature": 0,
        "max_tokens": 40,
        "logprobs": 3,
    }
    response = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


def test_two_hosts_with_a_key_answer_like_one_and_end_when_the_rank_dies(
    server: ServerProcess, demo_model: Path, tmp_path: Path
) -> None:
    wanted = completion(server)
    log = tmp_path / "node.log"
    with namespaces(2) as hosts:
        both = TwoHosts(hosts, demo_model, log, {"QANAT_CLUSTER_KEY": "0123456789abcdef"})
        with both, both.here.inside():
            assert completion(both.server) == wanted  # texts and log-probabilities, bit for bit
            metrics = both.server.get("/metrics").text
            assert "qanat:collective_seconds_total" in metrics
            assert "may join the service" not in both.server.output
            (rank,) = children_of(both.node.pid)
            os.kill(rank, signal.SIGKILL)
            assert both.node.wait(NOTICE_S) == 1
            named = f"Rank 1 (process {rank} on "
            assert holds_within(NOTICE_S, lambda: named in both.server.output)
            assert named in log.read_text() and "was killed by SIGKILL" in log.read_text()


def test_a_host_with_another_key_does_not_get_in(demo_model: Path, tmp_path: Path) -> None:
    """Both sides end with words: the one is refused, for the other a host is missing."""
    port = str(free_port())
    flags = ["-tp", "2", "--nnodes", "2", "--master-port", port, "--init-timeout-s", "40"]
    command = [*COMMAND, "serve", str(demo_model), *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "head.log").open("w+") as file:
        head = subprocess.Popen(
            [*command, "--port", str(free_port())],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**environment, "QANAT_CLUSTER_KEY": "0123456789abcdef"},
        )
        try:
            node = subprocess.run(
                [*command, "--node-rank", "1"],
                env={**environment, "QANAT_CLUSTER_KEY": "fedcba9876543210"},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert node.returncode == 1 and "does not know QANAT_CLUSTER_KEY" in node.stderr
            assert head.wait(120) != 0
        finally:
            head.kill()
            head.wait()
        file.seek(0)
        output = file.read()
        assert (
            "was refused: it does not know QANAT_CLUSTER_KEY" in output and "Node 1 did not report" in output
        )
        assert "0123456789abcdef" not in output + node.stderr and "Traceback" not in output


def test_a_backend_of_one_process_is_refused_for_two_ranks(demo_model: Path) -> None:
    command = [*COMMAND, "serve", str(demo_model), "-tp", "2", "--distributed-executor-backend", "uni"]
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two ranks need two cores")
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 2 and "use mp" in result.stderr
