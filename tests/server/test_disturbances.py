"""Clocks that jump and disks that are full."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.test_run import ENDLESS, arguments, model  # noqa: F401
from tests.server.test_stopping import WAIT_S, exit_code, signal_to, streams, wait_until
from tests.support.server_process import COMMAND, ServerProcess, free_port
from tests.support.startup_script import UNHURRIED, with_startup_script

pytestmark = pytest.mark.slow
JUMPING_CLOCK = """
import itertools
import time

real, jumps = time.time, itertools.cycle([0.0, 1e8, -1e8, 3600.0])
time.time = lambda: real() + next(jumps)
time.time_ns = lambda: int(1e9 * time.time())
"""


def test_no_time_limit_depends_on_the_wall_clock(model: str, tmp_path: Path) -> None:  # noqa: F811
    """The wall clock of both processes jumps by years at every look at it."""
    environment = with_startup_script(tmp_path, JUMPING_CLOCK + UNHURRIED)
    flags = ("--shutdown-timeout", "3600", "--step-timeout-s", "60")
    with ServerProcess(arguments(model, *flags), environment=environment) as server:
        body = {**ENDLESS, "stream": False, "max_tokens": 20, "timeout": 600}
        answer = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=WAIT_S).json()
        assert answer["usage"]["completion_tokens"] == 20
        assert 0 <= answer["timing"]["total_s"] < 600
        assert server.get("/health").json()["status"] == "ok"
        with streams(server, 1) as endings:
            assert server.get("/health").json()["status"] == "ok"
            signal_to(server)
            wait_until(lambda: server.get("/ready").status_code == 503)
            assert not endings[0].done()
            signal_to(server)
        assert exit_code(server) == 0
        assert "Traceback" not in server.output


def test_a_log_that_cannot_be_written_stops_nothing(model: str) -> None:  # noqa: F811
    port = free_port()
    command = [*COMMAND, "serve", *arguments(model, "--port", str(port))]
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(command, stdout=full, stderr=full)

    def is_ready() -> bool:
        assert process.poll() is None
        try:
            return httpx.get(f"http://127.0.0.1:{port}/ready", timeout=WAIT_S).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(is_ready)
        body: dict[str, Any] = {"prompt": "x", "max_tokens": 3}
        for _ in range(3):
            answer = httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body, timeout=WAIT_S)
            assert answer.status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
