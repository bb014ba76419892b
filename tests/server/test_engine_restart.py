"""--restart-engine: the engine dies under a real server, and comes back or does not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.server.test_run import ENDLESS, arguments, model  # noqa: F401
from tests.server.test_stopping import WAIT_S, error_of, exit_code, wait_until
from tests.support.server_process import ServerProcess
from tests.support.startup_script import UNHURRIED, with_startup_script

pytestmark = pytest.mark.slow
SHORT = {"prompt": "x", "max_tokens": 3, "temperature": 0, "ignore_eos": True}

FAILING = """
if is_core:
    from qanat.worker.worker import Worker

    trigger = folder / "trigger"
    execute = Worker.execute

    def fail_on_trigger(self, batch):
        if trigger.exists():
            raise ValueError("a defect of the test")
        return execute(self, batch)

    Worker.execute = fail_on_trigger
"""


def kill_under_a_stream(server: ServerProcess) -> None:
    with httpx.stream("POST", f"{server.base_url}/v1/completions", json=ENDLESS, timeout=WAIT_S) as stream:
        lines = (line for line in stream.iter_lines() if line)
        next(lines)
        (core_pid,) = server.child_pids()
        os.kill(core_pid, signal.SIGKILL)
        error = error_of(list(lines)[-1])
    assert error["code"] == "engine_dead" and "SIGKILL" in error["message"]


def test_an_engine_that_dies_comes_back_and_the_second_time_it_does_not(
    model: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    flags = ("--restart-engine", "--max-engine-restarts", "1")
    environment = with_startup_script(tmp_path, UNHURRIED)
    with ServerProcess(arguments(model, *flags), environment=environment) as server:
        completions = f"{server.base_url}/v1/completions"
        before = httpx.post(completions, json=SHORT, timeout=WAIT_S).json()["choices"]
        (tmp_path / "hold-start").touch()
        kill_under_a_stream(server)
        health = server.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "restarting")
        assert "SIGKILL" in health.json()["reason"]
        assert server.get("/ready").status_code == 503
        refused = httpx.post(completions, json=SHORT, timeout=WAIT_S)
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "engine_restarting"
        (tmp_path / "hold-start").unlink()
        wait_until(lambda: server.get("/ready").status_code == 200)
        assert httpx.post(completions, json=SHORT, timeout=WAIT_S).json()["choices"] == before
        metrics = server.get("/metrics").text
        assert any(
            line.startswith("qanat:engine_restarts_total{") and line.endswith(" 1.0")
            for line in metrics.splitlines()
        )
        kill_under_a_stream(server)
        dead = server.get("/health")
        assert (dead.status_code, dead.json()["status"]) == (503, "dead")
        assert exit_code(server) == 1
        assert "died too often (--max-engine-restarts)" in server.output


def test_a_signal_ends_a_server_whose_engine_restarts(model: str, tmp_path: Path) -> None:  # noqa: F811
    environment = with_startup_script(tmp_path, UNHURRIED)
    with ServerProcess(arguments(model, "--restart-engine"), environment=environment) as server:
        (tmp_path / "hold-start").touch()
        kill_under_a_stream(server)
        assert server.get("/health").json()["status"] == "restarting"
        assert server.stop() == 0
        assert "Traceback" not in server.output


def test_lines_of_a_core_that_fails_name_the_request_and_the_reason(model: str, tmp_path: Path) -> None:  # noqa: F811
    """One step fails: its requests end. Steps keep failing: the process ends and its last words are logged."""
    trigger = tmp_path / "trigger"
    environment = with_startup_script(tmp_path, FAILING)
    flags = ("--restart-engine", "--log-format", "json")
    with ServerProcess(arguments(model, *flags), environment=environment) as server:
        trigger.write_text("")
        statuses = [
            httpx.post(
                f"{server.base_url}/v1/completions",
                json=SHORT,
                headers={"X-Request-Id": f"find-me-{i}"},
                timeout=WAIT_S,
            ).status_code
            for i in range(3)
        ]
        assert statuses == [500, 500, 503]
        trigger.unlink()
        wait_until(lambda: server.get("/ready").status_code == 200)
        assert server.stop() == 0
        lines = [json.loads(line) for line in server.output.splitlines()]  # every line is JSON
    failed = [line for line in lines if line["logger"] == "qanat.engine.core" and line["level"] == "error"]
    assert ["find-me-0" in failed[0]["message"], "find-me-1" in failed[1]["message"]] == [True, True]
    assert "a defect of the test" in failed[0]["traceback"]
    (death,) = [line for line in lines if line["message"].startswith("The engine process ended")]
    assert "exit code 1" in death["message"] and "a defect of the test" in death["message"]
