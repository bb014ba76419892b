"""A real server in a process of its own, on a free port of the loopback interface."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 60.0
REPLY_TIMEOUT_S = 60.0
MAX_RESERVED = 100
COMMAND = [sys.executable, "-m", "qanat"]


_reserved: deque[socket.socket] = deque()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listens on, and that nobody gets who asks for any.

    It stays bound here without listening, beside which a server can listen that allows its address to be used again;
    so no other test takes it before that server starts, or between two that follow each other.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _reserved.append(holder)
    if len(_reserved) > MAX_RESERVED:
        _reserved.popleft().close()
    port: int = holder.getsockname()[1]
    return port


class ServerProcess:
    """`qanat serve` with these arguments; use as a context manager.

    Args:
        arguments: after `serve`; host and port are added unless they are among them.
        command: what to run instead of `python -m qanat serve`.
        environment: variables beside those of this process.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        given = list(arguments)
        if "--port" in given:
            given[given.index("--port") + 1] = str(self.port)
        else:
            given += ["--port", str(self.port)]
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        self._arguments = [*(command or [*COMMAND, "serve"]), *given]
        self._log = tempfile.NamedTemporaryFile("w+", prefix="qanat-test-", suffix=".log")  # noqa: SIM115
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        """Root of the server, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def output(self) -> str:
        """Everything it printed so far."""
        return Path(self._log.name).read_text()

    def __enter__(self) -> ServerProcess:
        self.process = subprocess.Popen(
            self._arguments,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
        )
        self._wait_until_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._log.close()

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Asks for a path on a connection of its own."""
        return httpx.get(self.base_url + path, **{"timeout": REPLY_TIMEOUT_S, **options})

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """Sends JSON to a path on a connection of its own."""
        return httpx.post(self.base_url + path, json=body, **{"timeout": REPLY_TIMEOUT_S, **options})

    def stop(self) -> int:
        """Asks it to end, and makes it after a while; returns the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.wait()

    def child_pids(self) -> list[int]:
        """Processes that the server started."""
        assert self.process is not None
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def all_pids(self) -> list[int]:
        """The server's own process and every one below it."""
        assert self.process is not None
        found = [self.process.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        return found

    def _wait_until_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.output}")
            try:
                if self.get("/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        self.stop()
        raise AssertionError(f"the server was not ready within {START_TIMEOUT_S} s:\n{self.output}")


def run_command(arguments: Sequence[str], *, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Runs `qanat` with these arguments to its end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment,
        check=False,
    )
