"""The server as a process of its own over random weights: start, stop, and the death of its engine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.e2e.test_processes import holds_within
from tests.support.scripted_engine import MODEL_FIELDS
from tests.support.server_process import COMMAND, ServerProcess
from tests.support.startup_script import UNHURRIED, with_startup_script

pytestmark = pytest.mark.slow
WAIT_S = 60.0
ENDLESS = {"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "stream": True}
"""Of an engine in no hurry."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    fields = {**MODEL_FIELDS, "architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 256, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(fields))
    return str(folder)


def arguments(model: str, *more: str) -> list[str]:
    return [model, "--load-format", "dummy", "--num-threads", "1", "--kv-cache-memory-bytes", "64MiB", *more]


@pytest.fixture
def process(model: str) -> Iterator[ServerProcess]:
    with ServerProcess(arguments(model, "--served-model-name", "tiny")) as running:
        yield running


@pytest.fixture
def unhurried(model: str, tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(arguments(model), environment=with_startup_script(tmp_path, UNHURRIED)) as running:
        yield running


def test_it_says_where_it_is_and_how_to_ask(process: ServerProcess) -> None:
    lines = [line for line in process.output.splitlines() if line.startswith("Qanat serves tiny at ")]
    assert len(lines) == 1
    assert f"curl {process.base_url}/v1/completions" in lines[0]
    body = {"model": "tiny", "prompt": "The future of AI is", "max_tokens": 5, "temperature": 0}
    response = process.post("/v1/completions", body)
    assert response.status_code == 200 and response.json()["usage"]["completion_tokens"] == 5


def test_the_first_signal_lets_running_requests_finish(process: ServerProcess) -> None:
    with httpx.stream(
        "POST", f"{process.base_url}/v1/completions", json={**ENDLESS, "max_tokens": 300}, timeout=WAIT_S
    ) as stream:
        lines = (line for line in stream.iter_lines() if line)
        next(lines)
        assert process.process is not None
        process.process.send_signal(signal.SIGTERM)
        assert list(lines)[-1] == "data: [DONE]"
    assert process.process.wait(WAIT_S) == 0


def test_the_second_signal_cuts_them_off(unhurried: ServerProcess) -> None:
    process = unhurried
    with httpx.stream("POST", f"{process.base_url}/v1/completions", json=ENDLESS, timeout=WAIT_S) as stream:
        lines = (line for line in stream.iter_lines() if line)
        next(lines)
        assert process.process is not None
        children = process.child_pids()
        process.process.send_signal(signal.SIGTERM)
        # Two signals at once would be one.
        assert holds_within(WAIT_S, lambda: "Stopping; 1 requests" in process.output)
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(WAIT_S) == 0
    assert children and not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_ops_009_a_dead_engine_shows_and_ends_the_server(unhurried: ServerProcess) -> None:
    process = unhurried
    with httpx.stream("POST", f"{process.base_url}/v1/completions", json=ENDLESS, timeout=WAIT_S) as stream:
        lines = (line for line in stream.iter_lines() if line)
        next(lines)
        for pid in process.child_pids():
            os.kill(pid, signal.SIGKILL)
        error = json.loads(list(lines)[-1].removeprefix("data: "))["error"]
    assert error["code"] == "engine_dead"
    assert process.get("/health").status_code == 503
    assert process.process is not None
    assert process.process.wait(WAIT_S) == 1


def test_ops_008_a_taken_port_is_told_before_the_model_is_loaded(model: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        result = subprocess.run(
            [*COMMAND, "serve", *arguments(model, "--port", str(port))],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
    assert result.returncode != 0
    assert f"Port {port} of 127.0.0.1 is taken" in result.stderr
    assert "Started server process" not in result.stderr
    assert "Traceback" not in result.stderr


def test_ops_008_health_says_no_until_the_model_is_loaded(model: str, tmp_path: Path) -> None:
    server = ServerProcess(arguments(model), environment=with_startup_script(tmp_path, UNHURRIED))
    hold = tmp_path / "hold-start"
    hold.touch()

    def load_once_somebody_was_told_to_wait() -> None:
        try:
            assert holds_within(WAIT_S, lambda: '"GET /ready HTTP/1.1" 503' in server.output)
        finally:
            hold.unlink()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(load_once_somebody_was_told_to_wait)
        with server as running:
            waiting.result()
            assert running.get("/health").status_code == 200


def test_a_start_that_fails_says_why_once(tmp_path: Path) -> None:
    fields = {**MODEL_FIELDS, "architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 256}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    command = [*COMMAND, "serve", str(tmp_path), "--port", "0", "--num-threads", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("qanat serve: error: ")
