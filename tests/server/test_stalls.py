"""A core that is stuck: /health turns, the log says where it is, and all goes on when it does. Real processes."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.test_run import arguments, model  # noqa: F401
from tests.server.test_stopping import WAIT_S, wait_until
from tests.support.server_process import ServerProcess
from tests.support.startup_script import with_startup_script

pytestmark = pytest.mark.slow

SCRIPT = """
if is_core:
    import ctypes
    from qanat.engine.core import EngineCore

    trigger = folder / "trigger"
    plain_step = EngineCore.step

    def stuck_in_python():
        while trigger.exists():
            for _ in range(100_000):
                pass

    def stuck_in_c():
        while trigger.exists():
            ctypes.PyDLL(None).usleep(300_000)  # with the interpreter's lock held

    def step(self):
        if trigger.exists():
            globals()[trigger.read_text()]()
        return plain_step(self)

    EngineCore.step = step
"""
COMPLETIONS = "/v1/completions"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stall")


@pytest.fixture(scope="module")
def server(model: str, folder: Path) -> Iterator[ServerProcess]:  # noqa: F811
    environment = with_startup_script(folder, SCRIPT)
    with ServerProcess(arguments(model, "--step-timeout-s", "1"), environment=environment) as running:
        yield running


def status(server: ServerProcess) -> tuple[int, str]:
    response = httpx.get(f"{server.base_url}/health", timeout=WAIT_S)
    return response.status_code, response.json()["status"]


def ask(server: ServerProcess) -> int:
    body = {"prompt": "x", "max_tokens": 2}
    return httpx.post(server.base_url + COMPLETIONS, json=body, timeout=WAIT_S).status_code


def send_and_leave_open(server: ServerProcess) -> socket.socket:
    """A request on a connection of its own, whose answer nobody waits for."""
    connection = socket.create_connection(("127.0.0.1", server.port))
    body = b'{"prompt": "x"}'
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


@pytest.mark.parametrize("place", ["stuck_in_python", "stuck_in_c"])
def test_ops_009_a_stuck_step_turns_health_and_shows_its_stack_once(
    server: ServerProcess, folder: Path, place: str
) -> None:
    num_before = server.output.count("No step has ended")
    (folder / "new").write_text(place)
    (folder / "new").rename(folder / "trigger")
    connections = [send_and_leave_open(server) for _ in range(3)]
    wait_until(lambda: status(server) == (503, "stalled"))
    assert server.get("/ready").status_code == 503
    wait_until(lambda: f"in {place}" in server.output)
    for connection in connections:  # that the clients leave settles nothing
        connection.close()
    wait_until(lambda: server.get("/health").json()["num_pending"] == 0)
    assert status(server) == (503, "stalled")
    (folder / "trigger").unlink()
    wait_until(lambda: status(server) == (200, "ok"))
    wait_until(lambda: server.output.count("Steps go on again") == num_before + 1)
    assert server.output.count("No step has ended") == num_before + 1
    assert ask(server) == 200


def test_ops_009_a_stopped_process_turns_health_and_goes_on_with_its_request(server: ServerProcess) -> None:
    (core_pid,) = (pid for pid in server.child_pids() if "core_process" in command_of(pid))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        os.kill(core_pid, signal.SIGSTOP)
        try:
            answer = pool.submit(ask, server)
            wait_until(lambda: status(server) == (503, "stalled"))
            wait_until(lambda: "the process is stopped" in server.output)
        finally:
            os.kill(core_pid, signal.SIGCONT)
        assert answer.result(WAIT_S) == 200
    wait_until(lambda: status(server) == (200, "ok"))


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()
