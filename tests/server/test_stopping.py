"""The end of a server under load: no longer ready, finish what runs, tell the rest, and go."""

from __future__ import annotations

import concurrent.futures
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_processes import gauge
from tests.server.test_run import ENDLESS, arguments, model  # noqa: F401
from tests.support.server_process import ServerProcess
from tests.support.startup_script import UNHURRIED, with_startup_script

pytestmark = pytest.mark.slow
WAIT_S = 180.0
NUM_STREAMS = 8
LONG_DRAIN = ("--shutdown-timeout", "3600")


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def signal_to(process: ServerProcess, number: int = signal.SIGTERM) -> None:
    assert process.process is not None
    process.process.send_signal(number)


def exit_code(process: ServerProcess) -> int:
    assert process.process is not None
    return process.process.wait(WAIT_S)


@contextmanager
def streams(process: ServerProcess, num_streams: int) -> Iterator[list[concurrent.futures.Future[str]]]:
    """Endless streams that have begun; each future holds the last line of one."""
    begun = threading.Barrier(num_streams + 1)

    def read(_: int) -> str:
        with httpx.stream(
            "POST", f"{process.base_url}/v1/completions", json=ENDLESS, timeout=WAIT_S
        ) as stream:
            lines = (line for line in stream.iter_lines() if line)
            next(lines)
            begun.wait(WAIT_S)
            return list(lines)[-1]

    with concurrent.futures.ThreadPoolExecutor(num_streams) as pool:
        futures = [pool.submit(read, i) for i in range(num_streams)]
        begun.wait(WAIT_S)
        yield futures


def error_of(line: str) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(line.removeprefix("data: "))["error"]
    return error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_every_stream_that_outlasts_the_drain_gets_its_error(
    model: str,  # noqa: F811
    tmp_path: Path,
    number: int,
) -> None:
    environment = with_startup_script(tmp_path, UNHURRIED)
    with ServerProcess(arguments(model, "--shutdown-timeout", "0"), environment=environment) as process:
        url, body = f"{process.base_url}/v1/completions", {**ENDLESS, "stream": False}
        with streams(process, NUM_STREAMS) as endings, concurrent.futures.ThreadPoolExecutor(1) as pool:
            whole = pool.submit(httpx.post, url, json=body, timeout=WAIT_S)
            wait_until(lambda: gauge(process, "vllm:num_requests_running") == NUM_STREAMS + 1)
            signal_to(process, number)
            errors = [error_of(ending.result(WAIT_S)) for ending in endings]
            answer = whole.result(WAIT_S)
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
        errors.append(answer.json()["error"])
        assert {(error["code"], error["type"]) for error in errors} == {("unavailable", "server_error")}
        assert all("stopped" in error["message"] for error in errors)
        assert exit_code(process) == 0
        assert (
            "Traceback" not in process.output and f"{NUM_STREAMS + 1} requests are cut off" in process.output
        )


def test_during_the_drain_it_answers_and_takes_nothing_new_until_the_second_signal(
    model: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    environment = with_startup_script(tmp_path, UNHURRIED)
    with ServerProcess(arguments(model, *LONG_DRAIN), environment=environment) as process:
        with streams(process, 2) as endings:
            signal_to(process)
            wait_until(lambda: process.get("/ready").status_code == 503)
            health = process.get("/health")
            assert (health.status_code, health.json()["status"]) == (200, "stopping")
            wait_until(lambda: "Stopping; 2 requests" in process.output)
            refused = process.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
            assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
            assert "being stopped" in refused.json()["error"]["message"]
            assert not any(ending.done() for ending in endings)
            signal_to(process)
            assert {error_of(ending.result(WAIT_S))["code"] for ending in endings} == {"unavailable"}
        assert exit_code(process) == 0


def test_what_finishes_in_time_is_complete_and_the_server_ends_as_soon_as_all_has(model: str) -> None:  # noqa: F811
    body = {**ENDLESS, "max_tokens": 300}
    with ServerProcess(arguments(model, *LONG_DRAIN)) as process:
        with httpx.stream("POST", f"{process.base_url}/v1/completions", json=body, timeout=WAIT_S) as stream:
            lines = (line for line in stream.iter_lines() if line)
            next(lines)
            signal_to(process)
            assert list(lines)[-1] == "data: [DONE]"
        assert exit_code(process) == 0
        assert "cut off" not in process.output


def test_an_idle_server_ends_at_once(model: str) -> None:  # noqa: F811
    with ServerProcess(arguments(model, *LONG_DRAIN)) as process:
        signal_to(process)
        assert exit_code(process) == 0
