"""One service on two hosts: a head that serves, and a headless process whose replica it serves too."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

import httpx
import pytest

from tests.e2e.test_processes import holds_within, is_running
from tests.netns import namespaces
from tests.support.server_process import COMMAND, ServerProcess, free_port, run_command

pytestmark = pytest.mark.slow

WAIT_S = 180.0
RANK_HEADER = "X-data-parallel-rank"
KEY = "correct horse battery staple"
WITH_KEY = {"QANAT_CLUSTER_KEY": KEY}
SHORT = {"model": "demo", "prompt": "1 2 3", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
LONG = {**SHORT, "max_tokens": 100_000, "stream": True}


class Headless:
    """`qanat serve --headless` in a process of its own; use as a context manager."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        key: str = KEY,
        command: Callable[[list[str]], list[str]] = list,
    ) -> None:
        self._command = command([*COMMAND, "serve", *arguments, "--headless"])
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", "QANAT_CLUSTER_KEY": key}
        self._log = tempfile.NamedTemporaryFile("w+", prefix="qanat-test-", suffix=".log")  # noqa: SIM115

    def __enter__(self) -> Headless:
        self.process = subprocess.Popen(
            self._command, stdout=self._log, stderr=subprocess.STDOUT, env=self._environment
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._log.close()

    @property
    def output(self) -> str:
        return Path(self._log.name).read_text()

    def child_pids(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]


def flags(model: Path, port: int, address: str = "127.0.0.1") -> list[str]:
    return [
        *(str(model), "--served-model-name", "demo", "--max-num-seqs", "4", "--num-threads", "1"),
        *("-dp", "2", "-dpl", "1", "-dpa", address, "-dpp", str(port)),
    ]


def ask(server: ServerProcess, rank: int) -> httpx.Response:
    return httpx.post(
        f"{server.base_url}/v1/completions", json=SHORT, headers={RANK_HEADER: str(rank)}, timeout=WAIT_S
    )


def text_of(server: ServerProcess, rank: int) -> str:
    response = ask(server, rank)
    assert response.status_code == 200, response.text
    text = response.json()["choices"][0]["text"]
    assert isinstance(text, str) and text
    return text


@contextlib.contextmanager
def stream(server: ServerProcess, rank: int) -> Iterator[Iterator[str]]:
    """Events of a request that lasts, after the first one."""
    with httpx.stream(
        "POST",
        f"{server.base_url}/v1/completions",
        json=LONG,
        headers={RANK_HEADER: str(rank)},
        timeout=WAIT_S,
    ) as response:
        lines = (line for line in response.iter_lines() if line)
        assert next(lines).startswith("data:")
        yield lines


def test_two_hosts_serve_as_one_until_one_is_killed_and_comes_back(demo_model: Path) -> None:
    port = free_port()
    host_flags = [*flags(demo_model, port), "-dpr", "1"]
    head = ServerProcess([*flags(demo_model, port), "--restart-engine"], environment=WITH_KEY)
    with Headless(host_flags) as host:  # which may be there first
        with head:
            joined = f"Replica 1 of 2 joined the head at 127.0.0.1:{port}"
            assert holds_within(WAIT_S, lambda: joined in host.output)
            assert "Replica 1 joined: process" in head.output
            assert text_of(head, 1) == text_of(head, 0)
            assert ask(head, 2).status_code == 400
            (core_pid,) = host.child_pids()
            with stream(head, 0) as here, stream(head, 1) as there:
                host.process.kill()
                assert any("engine_dead" in line and "Replica 1" in line for line in there)
                assert next(here).startswith("data:")
            assert holds_within(WAIT_S, lambda: not is_running(core_pid))
            assert ask(head, 0).status_code == 200
            with Headless(host_flags) as again:
                assert holds_within(WAIT_S, lambda: ask(head, 1).status_code == 200)
                assert text_of(head, 1) == text_of(head, 0)
                (core_pid,) = again.child_pids()
                with stream(head, 1) as there:  # a core that dies is told of, and replaced by its host
                    os.kill(core_pid, signal.SIGSEGV)
                    assert any("engine_dead" in line and "SIGSEGV" in line for line in there)
                assert holds_within(WAIT_S, lambda: ask(head, 1).status_code == 200)
                assert "Segmentation fault" in head.output, "its last words come over"
                again.process.terminate()
                assert again.process.wait(WAIT_S) == 0
                assert holds_within(WAIT_S, lambda: "was told to stop" in head.output)
            shown = head.output + host.output + command_lines()
            assert KEY not in shown and "Traceback" not in host.output


def command_lines() -> str:
    """Of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_text())
    return "\n".join(found)


def test_a_head_without_replicas_of_its_own_and_the_end_of_it(demo_model: Path) -> None:
    port = free_port()
    common = [str(demo_model), "--served-model-name", "demo", "-dp", "1", "-dpp", str(port)]
    with Headless([*common, "--max-num-seqs", "4"]) as host:
        head = ServerProcess([*common, "-dpl", "0"], environment=WITH_KEY)
        with head:
            assert not head.child_pids()
            assert text_of(head, 0)
            (core_pid,) = host.child_pids()
            assert head.stop() == 0
        assert host.process.wait(WAIT_S) == 1
        assert "The head at" in host.output and not is_running(core_pid)


def test_a_host_with_another_key_or_model_is_refused_in_words(demo_model: Path) -> None:
    port = free_port()
    head = [*COMMAND, "serve", *flags(demo_model, port), "--port", str(free_port())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **WITH_KEY}
    host_flags = [*flags(demo_model, port), "-dpr", "1"]
    with subprocess.Popen(
        head, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as serving:
        with Headless(host_flags, key=KEY + "!") as host:
            assert host.process.wait(WAIT_S) == 2
            assert "QANAT_CLUSTER_KEY must be the same" in host.output
        with Headless([*host_flags, "--dtype", "float32", "--max-model-len", "512"]) as host:
            assert host.process.wait(WAIT_S) == 2
            assert "--dtype float32 instead of bfloat16" in host.output
            assert "--max-model-len 512 instead of" in host.output
            assert "Traceback" not in host.output
        serving.terminate()
        output, _ = serving.communicate(timeout=WAIT_S)
    assert "Traceback" not in output and KEY not in output
    assert "Refused as a host of this service: process" in output and "--dtype float32" in output
    assert "something that tried to join could not" in output


def test_hosts_that_do_not_come_are_named(demo_model: Path) -> None:
    ports = [str(free_port()), str(free_port())]
    command = ["serve", str(demo_model), "-dp", "2", "-dpl", "0", "--init-timeout-s", "1"]
    done = run_command([*command, "-dpp", ports[0], "--port", ports[1]], timeout_s=WAIT_S)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"Replicas 0 and 1 did not join at 127.0.0.1:{ports[0]} within 1 s" in done.stderr
    done = run_command(
        [*command[:4], "-dpl", "1", "--headless", *command[-2:], "-dpp", ports[0]], timeout_s=WAIT_S
    )
    assert done.returncode == 1 and f"No head answered at 127.0.0.1:{ports[0]} within 1 s" in done.stderr


@pytest.mark.parametrize(
    ("address", "message"), [("192.0.2.1", "is not an address of this host"), ("127.0.0.1", "is taken")]
)
def test_a_head_that_cannot_listen_says_what_to_change(demo_model: Path, address: str, message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_command(
            ["serve", *flags(demo_model, port, address), "--port", str(free_port())], timeout_s=WAIT_S
        )
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_a_partition_ends_the_requests_beyond_it_only_and_then_heals(demo_model: Path) -> None:
    with namespaces(2) as (left, right), left.inside():
        common = flags(demo_model, 29550, left.address)
        head = ServerProcess(
            [*common, "--restart-engine"],
            command=left.command([*COMMAND, "serve"]),
            environment=WITH_KEY,
        )
        with Headless([*common, "-dpr", "1"], command=right.command) as host, head:
            assert f"({right.address}, eth0)" in head.output
            expected = text_of(head, 0)
            assert text_of(head, 1) == expected
            with stream(head, 0) as here, stream(head, 1) as there:
                right.cut()
                assert any("engine_dead" in line and "has said nothing" in line for line in there)
                assert next(here).startswith("data:")
            assert text_of(head, 0) == expected
            assert ask(head, 1).status_code == 503
            assert holds_within(WAIT_S, lambda: "Joining it again is tried" in host.output)
            right.join()
            assert holds_within(WAIT_S, lambda: ask(head, 1).status_code == 200)
            assert text_of(head, 1) == expected
            assert holds_within(WAIT_S, lambda: host.output.count("joined the head") == 2)
