"""A core that is stuck: /health turns, the log says where it is, and all goes on when it does. Real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.test_run import ENDLESS, arguments, model  # noqa: F401
from tests.server.test_stopping import WAIT_S, wait_until
from tests.support.server_process import ServerProcess
from tests.support.startup_script import with_startup_script

pytestmark = pytest.mark.slow

SCRIPT = """
if is_core:
    import ctypes
    from pathlib import Path
    from qanat.engine.core import EngineCore

    trigger = Path({trigger!r})
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


@pytest.fixture(scope="module")
def trigger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stall") / "trigger"


@pytest.fixture(scope="module")
def server(model: str, trigger: Path) -> Iterator[ServerProcess]:  # noqa: F811
    environment = with_startup_script(trigger.parent, SCRIPT.format(trigger=str(trigger)))
    with ServerProcess(arguments(model, "--step-timeout-s", "1"), environment=environment) as running:
        yield running


def status(server: ServerProcess) -> tuple[int, str]:
    response = httpx.get(f"{server.base_url}/health", timeout=WAIT_S)
    return response.status_code, response.json()["status"]


@pytest.mark.parametrize("place", ["stuck_in_python", "stuck_in_c"])
def test_ops_009_a_stuck_step_turns_health_and_shows_its_stack_once(
    server: ServerProcess, trigger: Path, place: str
) -> None:
    num_before = server.output.count("No step has ended")
    completions = f"{server.base_url}/v1/completions"
    with httpx.stream("POST", completions, json=ENDLESS, timeout=WAIT_S) as stream:
        next(stream.iter_lines())
        (trigger.parent / "new").write_text(place)
        (trigger.parent / "new").rename(trigger)
        wait_until(lambda: status(server) == (503, "stalled"))
        assert httpx.get(f"{server.base_url}/ready").status_code == 503
        wait_until(lambda: f"in {place}" in server.output)
    # The client has left: that settles nothing.
    for _ in range(20):
        assert status(server) == (503, "stalled")
    trigger.unlink()
    wait_until(lambda: status(server) == (200, "ok"))
    wait_until(lambda: "Steps go on again" in server.output)
    assert server.output.count("No step has ended") == num_before + 1
    answer = httpx.post(completions, json={"prompt": "x", "max_tokens": 2}, timeout=WAIT_S)
    assert answer.status_code == 200


def test_ops_009_a_stopped_process_turns_health_and_goes_on_with_its_request(server: ServerProcess) -> None:
    (core_pid,) = server.child_pids()
    body = {**ENDLESS, "max_tokens": 1500}
    with httpx.stream("POST", f"{server.base_url}/v1/completions", json=body, timeout=WAIT_S) as stream:
        lines = (line for line in stream.iter_lines() if line)
        next(lines)
        os.kill(core_pid, signal.SIGSTOP)
        try:
            wait_until(lambda: status(server) == (503, "stalled"))
            wait_until(lambda: "the process is stopped" in server.output)
        finally:
            os.kill(core_pid, signal.SIGCONT)
        assert list(lines)[-1] == "data: [DONE]"
    assert status(server) == (200, "ok")
