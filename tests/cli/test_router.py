"""`qanat router` through the door that users have: its command line and its process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from qanat.cli.main import main
from qanat.cli.router import read_config
from qanat.config.options import options_of
from qanat.router.options import GROUPS
from qanat.router.run import MAX_FILES
from tests.house.checkout import ROOT

LIMIT_S = 60.0


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["router", *arguments]) == 2
    return capsys.readouterr().err


def test_help_names_every_flag_with_examples() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "qanat", "router", "--help"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0
    for group in GROUPS:
        for one in options_of(group):
            assert one.flag in done.stdout
    assert "qanat router http://10.0.0.1:8000 http://10.0.0.2:8000 --policy prefix" in done.stdout


def test_the_guide_names_every_flag_with_its_help_and_default() -> None:
    text = (ROOT / "docs" / "router.md").read_text(encoding="utf-8").partition("## Flags")[2]
    for group in GROUPS:
        for one in options_of(group):
            (row,) = [line for line in text.splitlines() if line.startswith(f"| `{one.flag}`")]
            assert one.help.replace("|", "\\|") in row
            assert one.default in (None, (), True, False) or str(one.default) in row


def test_help_loads_no_server() -> None:
    code = (
        "import sys; from qanat.cli.main import main; main(['router', '--help']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'httptools', 'asyncio', 'ssl', 'yaml')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "no engine is named; name its URL, as in `qanat router http://10.0.0.1:8000`"),
        (["a:1", "--polcy", "prefix"], "--policy"),
        (
            ["a:1", "--policy", "best"],
            "--policy: 'best' is not one of least-tokens, power-of-two, prefix, session",
        ),
        (["a:1", "--port", "99999"], "--port: 99999 is too large"),
        (["a:1", "--port"], "--port needs a value"),
        (["a:1", "--drain-timeout-s", "soon"], "--drain-timeout-s"),
        (["ftp://a:1"], "the scheme 'ftp' is neither http nor https"),
        (["--endpoint", "a:1,role=both"], "--endpoint a:1,role=both: the role 'both'"),
        (
            ["--prefiller-hosts", "a", "--prefiller-ports", "1", "2"],
            "--prefiller-hosts names 1, --prefiller-ports 2",
        ),
        (["a:1", "--api-key-env", "QANAT_TEST_UNSET"], "the variable QANAT_TEST_UNSET is not set"),
        (["a:1", "--endpoints-file", "/nowhere/engines"], "--endpoints-file /nowhere/engines: No such file"),
        (["a:1", "--config", "/nowhere/router.yaml"], "--config /nowhere/router.yaml: cannot be read"),
        (["a:1", "--access-log", "/nowhere/log"], "--access-log /nowhere/log: cannot be written"),
        (["a:1", "--ca-file", "/nowhere/ca"], "--ca-file /nowhere/ca: cannot be read"),
        (["a:1", "--ssl-certfile", "/no/c", "--ssl-keyfile", "/no/k"], "--ssl-certfile /no/c"),
        (["a:1", "--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--endpoints-dns", "https://a:1"], "--endpoints-dns https://a:1: certificates name hosts"),
    ],
)
def test_mistakes_are_named_with_their_flag(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert what in error_of(capsys, *arguments)


def test_a_port_that_is_taken_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = error_of(capsys, "a:1", "--port", str(taken.getsockname()[1]))
    assert "choose another --host or --port" in text


def test_flags_add_up_and_go_before_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "router.yaml"
    file.write_text(
        "policy: session\nport: 9000\nmax-queue: 7\nprefiller_hosts: [p1]\nprefiller_ports: [8100]\n"
        "endpoints:\n  - http://c:1\n  - url: http://d:1\n    role: decode\n    weight: 2\n"
    )
    config = read_config(
        ["a:1", "--endpoint", "b:1", "--endpoint", "e:1", "--config", str(file), "--port", "1234"]
    )
    assert [spec.name for spec in config.endpoints] == ["a:1", "b:1", "e:1", "c:1", "d:1", "p1:8100"]
    options = config.options
    assert (options.policy, options.port, options.max_queue) == ("session", 1234, 7)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("polcy: prefix\n", "router.yaml: polcy: unknown setting"),
        ("endpoints: a:1\n", "router.yaml: endpoints: must be a list"),
        ("port: high\n", "router.yaml: port"),
        ("- a\n", "must hold flags as keys"),
        ("a: [\n", "no valid YAML"),
    ],
)
def test_mistakes_in_the_file_are_named_with_their_key(
    text: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "router.yaml"
    file.write_text(text)
    assert what in error_of(capsys, "a:1", "--config", str(file))


def test_flags_of_the_example_proxies_without_use_are_taken_and_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = read_config(["a:1", "--workers", "4", "--retry-delay", "0.1", "--max-retries", "1"])
    assert config.options.max_retries == 1
    told = capsys.readouterr().err
    assert "--workers has no effect" in told and "--retry-delay has no effect" in told


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A router's process and its port."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "ADMIN": "k"}
    command = [sys.executable, "-m", "qanat", "router", "--port", "0", *arguments]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"qanat router: https?://\S+?:(\d+) in front of", line):
                yield process, int(found[1])
                break
        else:
            pytest.fail("the router did not start")
    finally:
        process.kill()
        process.wait()


def get(port: int, path: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_process_serves_until_it_is_told_to_stop() -> None:
    with running("127.0.0.1:9", "--admin-key-env", "ADMIN") as (process, port):
        assert get(port, "/live")[0] == 200
        status, text = get(port, "/router/endpoints", Authorization="Bearer k")
        assert status == 200 and json.loads(text)["endpoints"][0]["name"] == "127.0.0.1:9"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0


def test_it_takes_as_many_open_files_as_it_may() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with running("127.0.0.1:9") as (process, _):
            now_soft, now_hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert now_soft == min(now_hard, MAX_FILES) > 256


def test_a_stop_lets_open_requests_finish_and_a_second_signal_does_not() -> None:
    """The engine is a socket here, so that the test says when it answers."""
    for has_patience in (True, False):
        with socket.create_server(("127.0.0.1", 0)) as engine:
            address = f"127.0.0.1:{engine.getsockname()[1]}"
            with running(address, "--health-interval-s", "3600", "--health-timeout-s", "3600") as (
                process,
                port,
            ):
                client = socket.create_connection(("127.0.0.1", port), LIMIT_S)
                client.sendall(b"POST /tokenize HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
                asked = wait_for(engine, b"POST /tokenize")
                process.send_signal(signal.SIGTERM)
                assert process.stderr is not None
                line = next(line for line in process.stderr if "stopping" in line)
                assert "1 requests may go on for up to 30 s" in line
                if has_patience:
                    asked.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
                    assert client.recv(65536).endswith(b"\r\n\r\nhi")
                else:
                    process.send_signal(signal.SIGTERM)
                assert process.wait(LIMIT_S) == 0
                client.close()
                asked.close()


def wait_for(engine: socket.socket, begin: bytes) -> socket.socket:
    """The connection on which a request comes that begins like this; the router's look stays without an answer."""
    looks = []
    while True:
        connection, _ = engine.accept()
        if connection.recv(65536).startswith(begin):
            return connection
        looks.append(connection)
