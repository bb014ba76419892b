"""The processes of benchmarks/router.py: engines, what stands in front of them, and the clients."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Target:
    """What gets the load; `direct` has no process of its own, only the engines' ports."""

    name: str
    ports: Sequence[int]
    process_id: int | None = None

    def cpu_s(self) -> float:
        """CPU time that the process has used so far."""
        if self.process_id is None:
            return 0.0
        fields = Path(f"/proc/{self.process_id}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S


@contextmanager
def process(command: Sequence[str | Path], core: int, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process on one core, ended with the block."""
    pinned = ["taskset", "-c", str(core), *map(str, command)]
    child = subprocess.Popen(pinned, cwd=ROOT, **options)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def printing_ports(command: Sequence[str | Path], core: int) -> Iterator[tuple[list[int], int]]:
    """A process that says in its first line where it listens: the ports, and its id."""
    with process(command, core, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, command))}: ended with status {child.wait()}")
        yield [int(word) for word in line.split()], child.pid


@contextmanager
def engines(options: argparse.Namespace) -> Iterator[list[int]]:
    """Stub engines in a process of their own: their ports."""
    command = [sys.executable, "-m", "benchmarks.router_engine", "--engines", str(options.engines)]
    command += ["--tokens", str(options.tokens), "--period-ms", str(options.period_ms)]
    with printing_ports(command, options.other_core) as (ports, _):
        yield ports


@contextmanager
def started(options: argparse.Namespace, ports: list[int]) -> Iterator[list[Target]]:
    """Everything that is to be measured, `direct` first."""
    with ExitStack() as stack:
        targets = [Target("direct", ports)]
        for name in [*options.targets, *(["peer"] if options.peer else [])]:
            if name == "plain":
                command = [sys.executable, "-m", "benchmarks.router_plain", *map(str, ports)]
                found, process_id = stack.enter_context(printing_ports(command, options.router_core))
                targets.append(Target(name, found, process_id))
                continue
            port = free_port()
            child = stack.enter_context(
                process(
                    [*command_of(name, options, ports), "--host", "127.0.0.1", "--port", str(port)],
                    options.router_core,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            wait_for(port, child, name)
            targets.append(Target(name, [port], child.pid))
        yield targets


def command_of(name: str, options: argparse.Namespace, ports: list[int]) -> list[str | Path]:
    """How a target is started, its own address apart."""
    half = len(ports) // 2
    hosts = ["127.0.0.1"] * half
    pair = ["--prefiller-hosts", *hosts, "--prefiller-ports", *map(str, ports[:half])]
    pair += ["--decoder-hosts", *hosts, "--decoder-ports", *map(str, ports[half : 2 * half])]
    if name == "peer":
        return [options.peer_python, options.peer.resolve(), *pair]
    router: list[str | Path] = [sys.executable, "-m", "qanat", "router"]
    if name == "pair":
        return [*router, *pair]
    for port in ports:
        router += ["--endpoint", f"http://127.0.0.1:{port}"]
    return router


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int, child: subprocess.Popen[bytes], name: str) -> None:
    """Returns when the port takes connections."""
    end_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end_s:
        if child.poll() is not None:
            raise SystemExit(f"{name} ended with status {child.returncode} before it listened")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{name} does not listen after {START_TIMEOUT_S:.0f} s")


def load(
    options: argparse.Namespace, ports: Sequence[int], kind: str, connections: int, *extra: str
) -> dict[str, Any]:
    """One load from a process of its own; see benchmarks/router_load.py for the figures."""
    command = [sys.executable, "-m", "benchmarks.router_load", *map(str, ports), "--kind", kind]
    command += ["--connections", str(connections), "--seconds", str(options.seconds), *extra]
    pinned = ["taskset", "-c", str(options.other_core), *command]
    done = subprocess.run(pinned, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    figures: dict[str, Any] = msgspec.json.decode(done.stdout)
    return figures
