"""Server and engine core live in two processes; each notices the other's end, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest

from tests.support.server_process import COMMAND, ServerProcess, free_port

NOTICE_S = 60.0
"""A busy machine takes its time; what is to be noticed takes none, and nothing else ends a wait as early as that."""


def is_running(pid: int) -> bool:
    """False also for a process that has ended and only waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def holds_within(limit_s: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


@pytest.fixture
def server(demo_model: Path) -> ServerProcess:
    return ServerProcess([str(demo_model), "--served-model-name", "demo"])


LONG_BODY = {"model": "demo", "prompt": "1", "max_tokens": 100_000, "ignore_eos": True, "stream": True}


def test_death_of_the_core_ends_open_streams_and_health(server: ServerProcess) -> None:
    with server:
        (core_pid,) = server.child_pids()
        with httpx.stream(
            "POST", f"{server.base_url}/v1/completions", json=LONG_BODY, timeout=NOTICE_S
        ) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data:")
            os.kill(core_pid, signal.SIGKILL)
            rest = [line for line in lines if line]
            assert any("engine" in line and "error" in line for line in rest)
        assert holds_within(NOTICE_S, lambda: server.get("/health").status_code == 503)
        response = server.post("/v1/completions", {**LONG_BODY, "stream": False})
        assert response.status_code == 503


def test_death_of_the_server_ends_the_core_and_frees_the_port(server: ServerProcess) -> None:
    with server:
        (core_pid,) = server.child_pids()
        assert server.process is not None
        server.process.kill()
        server.process.wait()
        assert holds_within(NOTICE_S, lambda: not is_running(core_pid))
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", server.port))


def processor_s(pids: Sequence[int]) -> float:
    """Seconds of processor time that all threads of these processes have taken."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--tensor-parallel-size", "2"]])
def test_idle_all_processes_together_take_less_than_a_twentieth_of_a_core(
    demo_model: Path, flags: list[str]
) -> None:
    arguments = [str(demo_model), "--served-model-name", "demo", "--num-threads", "2", *flags]
    with ServerProcess(arguments) as server:
        server.post("/v1/completions", {**LONG_BODY, "stream": False, "max_tokens": 16})

        def is_idle() -> bool:
            pids = server.all_pids()
            assert len(pids) >= 2
            began_s, before_s = time.monotonic(), processor_s(pids)
            time.sleep(2)
            return processor_s(pids) - before_s < 0.05 * (time.monotonic() - began_s)

        assert holds_within(NOTICE_S, is_idle)


def test_sigterm_ends_both_cleanly(server: ServerProcess) -> None:
    with server:
        (core_pid,) = server.child_pids()
        sockets = [path for path in Path("/tmp").glob("qanat-*") if path.is_dir()]
        assert server.stop() == 0
        assert not is_running(core_pid)
        assert sockets and not all(path.exists() for path in sockets)


def test_sockets_lie_in_a_folder_of_the_users_own(server: ServerProcess) -> None:
    with server:
        (core_pid,) = server.child_pids()
        arguments = Path(f"/proc/{core_pid}/cmdline").read_text().split("\0")
        folder = Path(next(argument for argument in arguments if "qanat-" in argument))
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_client_that_leaves_frees_its_request(server: ServerProcess) -> None:
    with server:
        with httpx.stream(
            "POST", f"{server.base_url}/v1/completions", json=LONG_BODY, timeout=NOTICE_S
        ) as stream:
            assert next(stream.iter_lines()).startswith("data:")
        assert holds_within(NOTICE_S, lambda: gauge(server, "vllm:num_requests_running") == 0)
        assert holds_within(NOTICE_S, lambda: gauge(server, "vllm:kv_cache_usage_perc") == 0)


def gauge(server: ServerProcess, name: str) -> float:
    """Value of the metric's first sample."""
    lines = server.get("/metrics").text.splitlines()
    sample = next(line for line in lines if line.startswith(name))
    return float(sample.rpartition(" ")[2])


def test_sigterm_while_the_model_loads_ends_both_at_once(demo_model: Path) -> None:
    command = [*COMMAND, "serve", str(demo_model), "--port", str(free_port())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    assert holds_within(60, lambda: bool(children.read_text().split()))
    (core_pid,) = map(int, children.read_text().split())
    process.terminate()
    output, _ = process.communicate(timeout=NOTICE_S)
    assert process.returncode == 0, output
    assert "Traceback" not in output
    assert holds_within(NOTICE_S, lambda: not is_running(core_pid))
