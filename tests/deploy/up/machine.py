"""A machine in a folder on which `qanat deploy up` runs for real: containers are processes, vllm is ours."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.render.model import RenderOptions
from tests.deploy.plan.example_plans import disaggregated, single_node, two_nodes
from tests.deploy.render.machine import Machine
from tests.support.server_process import free_port

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 120.0
WINDOW = 256


def with_role_flags(plan: Plan, **flags: Any) -> Plan:
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    roles = tuple(msgspec.structs.replace(role, flags={**role.flags, **named}) for role in plan.roles)
    return msgspec.structs.replace(plan, roles=roles, wish=msgspec.structs.replace(plan.wish, concurrency=4))


def on_loopback(node: Node, **flags: Any) -> Node:
    merged = {**node.flags, **flags}
    merged = {
        name: "127.0.0.1" if name in ("host", "data-parallel-address") else value
        for name, value in merged.items()
    }
    return msgspec.structs.replace(node, address="127.0.0.1", interface="lo", flags=merged)


def one_node() -> Plan:
    port = free_port()
    return msgspec.structs.replace(with_role_flags(single_node(), port=port, max_model_len=WINDOW), port=port)


def a_group() -> Plan:
    """Two nodes of one engine, both on this machine."""
    plan, port = with_role_flags(two_nodes(), max_model_len=WINDOW), free_port()
    first, second = plan.nodes
    nodes = (on_loopback(first, port=port), on_loopback(second))
    return msgspec.structs.replace(plan, nodes=nodes, port=port)


def with_proxy() -> Plan:
    """Prefill, decode and the proxy on this machine."""
    plan, port = with_role_flags(disaggregated(), max_model_len=WINDOW), free_port()
    assert plan.proxy is not None
    return msgspec.structs.replace(
        plan,
        nodes=tuple(on_loopback(node, port=free_port()) for node in plan.nodes),
        proxy=msgspec.structs.replace(plan.proxy, port=port),
        port=port,
    )


class RunningMachine:
    """A machine with docker and vllm; as a context manager it leaves no process behind.

    Args:
        root: an empty folder.
        plan: that is rendered for it.
        options: how.
        scenario: how vllm starts: see fake_vllm.py.
    """

    def __init__(self, root: Path, plan: Plan, options: RenderOptions | None = None, **scenario: str) -> None:
        self.machine = Machine(root, plan, options)
        self.folder = self.machine.folder
        self.state = root / "containers"
        self.state.mkdir()
        (root / "scenario.json").write_text(json.dumps(scenario))
        self._program("docker", HERE / "fake_docker.py", self.state)
        self._program("vllm", HERE / "fake_vllm.py", root / "scenario.json")
        vllm = shlex.join([sys.executable, str(HERE / "fake_vllm.py")])
        self.machine.program("python3", f'exec {vllm} "$@"')
        (root / "model").mkdir()
        self.machine.edit(MODEL_PATH=str(root / "model"))
        activate = root / "install/venv/bin/activate"
        activate.parent.mkdir(parents=True)
        activate.write_text("")
        self.machine.edit(INSTALL_DIR=str(root / "install"))
        self.machine.program("sleep", "exec /bin/sleep 0.05")
        self.processes: list[subprocess.Popen[str]] = []

    def _program(self, name: str, *words: Path) -> None:
        self.machine.program(name, f'exec {shlex.join([sys.executable, *map(str, words)])} "$@"')

    def __enter__(self) -> RunningMachine:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        for pid in self.pids():
            os.killpg(pid, signal.SIGKILL)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts `qanat deploy up`, output and errors in one pipe."""
        process = subprocess.Popen(
            [sys.executable, "-m", "qanat", "deploy", "up", str(self.folder), *arguments],
            env={**self.machine.variables, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def up(self, *arguments: str) -> tuple[int, str]:
        """Runs `qanat deploy up` to its end: exit code and output."""
        process = self.begin(*arguments)
        output, _ = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, output

    def pids(self) -> list[int]:
        """Process groups of containers, or of engines without one, in which anything still runs."""
        file = self.state / "containers.json"
        containers = json.loads(file.read_text()) if file.exists() else {}
        groups = [one["pid"] for one in containers.values()]
        groups += [int(path.read_text().split()[0]) for path in (self.folder / "logs").glob("*.pid")]
        return [group for group in groups if is_group_alive(group)]

    def containers(self) -> list[str]:
        """Containers that are there, running or not."""
        file = self.state / "containers.json"
        return list(json.loads(file.read_text())) if file.exists() else []


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Output up to the line with this text; a process that does not say it in time is ended."""
    assert process.stdout is not None
    lines = []
    timer = threading.Timer(TIMEOUT_S, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            lines.append(line)
            if text in line:
                return "".join(lines)
    finally:
        timer.cancel()
    raise AssertionError(f"it never said {text!r}:\n{''.join(lines)}")


def is_group_alive(group: int) -> bool:
    """Whether a process of this group runs; zombies do not."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            return True
    return False
