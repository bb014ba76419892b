"""Engines without an image: processes of the machine itself, started and stopped for real."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qanat.deploy.render.model import RenderOptions
from tests.deploy.plan.example_plans import single_node
from tests.deploy.render.machine import Machine

START = "nodes/server-0/start.sh"
STOP = "nodes/server-0/stop.sh"
ENGINE = """\
printf '%s\\n' "$$" >>"$HOME/engines"
/bin/sleep 600 &
printf '%s\\n' "$!" >"$HOME/worker"
printf 'INFO Application startup complete.\\n'
wait
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, single_node(), RenderOptions(install="source"))
    machine.program("sleep", "exec /bin/sleep 0.05")
    activate = tmp_path / "install/venv/bin/activate"
    activate.parent.mkdir(parents=True)
    activate.write_text("export VIRTUAL_ENV=yes\n")
    machine.edit(INSTALL_DIR=str(tmp_path / "install"))
    machine.program("vllm", ENGINE)
    machine.program("python3", "exit 0")
    yield machine
    machine.run(STOP)


def number(machine: Machine, name: str) -> int:
    return int((machine.root / "home" / name).read_text().split()[-1])


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or not path.read_text().strip():
        assert time.monotonic() < deadline, f"{path} was never written"
        time.sleep(0.01)


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline, f"{pid} never ended"
        time.sleep(0.01)


def test_it_starts_once_and_stops_with_all_its_processes(machine: Machine) -> None:
    result = machine.run(START)
    assert result.returncode == 0, result.stderr
    assert "ready at http://127.0.0.1:8010/health" in result.stdout
    wait_for(machine.root / "home/worker")
    engine, worker = number(machine, "engines"), number(machine, "worker")
    assert is_alive(engine) and is_alive(worker)
    again = machine.run(START)
    assert again.returncode == 0
    assert "it runs already" in again.stdout
    assert len((machine.root / "home/engines").read_text().split()) == 1
    stopped = machine.run(STOP)
    assert stopped.returncode == 0, stopped.stderr
    assert not is_alive(engine) and not is_alive(worker)
    assert "nothing to stop" in machine.run(STOP).stdout


def test_the_log_is_a_file_of_this_run(machine: Machine) -> None:
    machine.run(START)
    wait_for(machine.root / "home/worker")
    machine.run(STOP)
    log = machine.folder / "logs/server-0.log"
    assert log.is_symlink()
    assert "Application startup complete." in log.read_text()


def test_other_settings_are_told(machine: Machine) -> None:
    machine.run(START)
    machine.edit(READY_TIMEOUT_S="7")
    assert machine.run(START).returncode == 0
    with (machine.folder / "env.sh").open("a") as file:
        file.write("export TASK_QUEUE_ENABLE=0\n")
    result = machine.run(START)
    assert result.returncode == 1
    assert "run stop.sh first" in result.stderr


def test_ops_008_a_port_that_is_taken_is_told_before_the_engine_loads(machine: Machine) -> None:
    (machine.programs / "timeout").unlink()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        script = machine.folder / START
        script.write_text(
            script.read_text().replace("127.0.0.1:8010", f"127.0.0.1:{port}").replace(":8010/", f":{port}/")
        )
        result = machine.run(START)
    assert result.returncode == 1
    assert f"another program listens on 127.0.0.1:{port} already" in result.stderr
    assert not (machine.root / "home/engines").exists()


def test_an_engine_that_ends_is_told_with_its_last_words(machine: Machine) -> None:
    machine.program("vllm", "printf 'RuntimeError: out of memory\\n' >&2; exit 1")
    machine.program("python3", "exit 1")
    result = machine.run(START)
    assert result.returncode == 1
    assert "RuntimeError: out of memory" in result.stderr
    assert "it ended" in result.stderr


def test_a_process_of_somebody_else_with_the_same_number_is_left_alone(machine: Machine) -> None:
    with subprocess.Popen(["/bin/sleep", "600"], start_new_session=True) as other:
        try:
            (machine.folder / "logs").mkdir()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            (machine.folder / "logs/server-0.pid").write_text(f"{other.pid} 1 {boot} settings\n")
            result = machine.run(STOP)
            assert result.returncode == 0
            assert "nothing to stop" in result.stdout
            assert other.poll() is None
        finally:
            other.kill()


def test_an_engine_that_does_not_end_is_killed(machine: Machine) -> None:
    machine.program("vllm", f"trap '' TERM\n{ENGINE}\nwait\nwhile true; do /bin/sleep 1; done")
    script = machine.folder / STOP
    script.write_text(script.read_text().replace("readonly stop_timeout_s=60", "readonly stop_timeout_s=1"))
    machine.run(START)
    wait_for(machine.root / "home/worker")
    engine = number(machine, "engines")
    result = machine.run(STOP)
    assert result.returncode == 0
    assert "is killed" in result.stdout
    wait_until_gone(engine)


def test_workers_that_outlive_their_engine_are_stopped_too(machine: Machine) -> None:
    machine.run(START)
    wait_for(machine.root / "home/worker")
    engine, worker = number(machine, "engines"), number(machine, "worker")
    os.kill(engine, signal.SIGKILL)
    wait_until_gone(engine)
    assert is_alive(worker)
    assert "processes of an engine that ended are still there" in machine.run(START).stderr
    assert machine.run(STOP).returncode == 0
    assert not is_alive(worker)


def test_a_pid_file_of_before_a_restart_of_the_machine_says_nothing(machine: Machine) -> None:
    machine.run(START)
    wait_for(machine.root / "home/worker")
    path = machine.folder / "logs/server-0.pid"
    pid, began, _, digest = path.read_text().split()
    content = path.read_text()
    path.write_text(f"{pid} {began} 00000000-0000-0000-0000-000000000000 {digest}\n")
    assert "nothing to stop" in machine.run(STOP).stdout
    assert is_alive(int(pid))
    path.write_text(content)


def test_the_engine_outlives_the_terminal(machine: Machine) -> None:
    with subprocess.Popen(
        [str(machine.folder / START)],
        env=machine.variables,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    ) as terminal:
        assert terminal.wait(60) == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(terminal.pid, signal.SIGHUP)
    wait_for(machine.root / "home/worker")
    assert is_alive(number(machine, "engines"))


def test_a_relative_folder_for_logs_is_refused(machine: Machine) -> None:
    machine.edit(LOG_DIR="logs")
    for script in (START, STOP):
        result = machine.run(script)
        assert result.returncode == 1
        assert "LOG_DIR is the relative path logs" in result.stderr
    machine.edit(LOG_DIR=str(machine.root / "logs"))
