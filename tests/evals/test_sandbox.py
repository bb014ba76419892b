"""Programs that do what they must not, on the machine as it is; what it cannot be kept from is skipped by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from qanat.evals.item import CodeTest
from qanat.evals.sandbox import run_program, run_test


@pytest.mark.parametrize(
    "source",
    [
        "print('x' * 100000)",
        "import json, re, math, collections, itertools, random, functools, typing",
        "open('here', 'w').write('x'); assert open('here').read() == 'x'",
        "import tempfile; tempfile.TemporaryFile().write(b'x')",
        "import threading; t = threading.Thread(target=print); t.start(); t.join()",
    ],
)
def test_what_a_program_may_do(source: str) -> None:
    run = run_program(source, 60)
    assert run.is_passed, run.report


@pytest.mark.parametrize(
    ("source", "layer", "told"),
    [
        ("open({outside!r}, 'w').write('x')", "files", "PermissionError"),
        ("import os; os.remove({kept!r})", "files", "PermissionError"),
        ("print(open({kept!r}).read())", "files", "PermissionError"),
        ("open('/etc/passwd').read()", "files", "PermissionError"),
        ("import os; os.fork()", "processes and signals", "PermissionError"),
        ("import subprocess; subprocess.run(['ls'])", "processes and signals", "PermissionError"),
        ("import os; os.kill(os.getppid(), 9)", "processes and signals", "PermissionError"),
        ("import socket; socket.create_connection(('127.0.0.1', {port}), 2)", "network", "Error"),
    ],
)
def test_what_it_may_not(tmp_path: Path, source: str, layer: str, told: str) -> None:
    import socket

    kept = tmp_path / "kept"
    kept.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        run = run_program(source.format(outside=str(tmp_path / "outside"), kept=str(kept), port=port), 60)
    if layer in run.open_layers:
        pytest.skip(f"this kernel does not lock: {layer}")
    assert not run.is_passed
    assert told in run.report
    assert not (tmp_path / "outside").exists()
    assert kept.read_text() == "secret"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("while True: pass", "did not end within 0.5 s"),
        ("import time; time.sleep(600)", "did not end within 0.5 s"),
        ("import os; os._exit(0)", "left with exit code 0"),
        ("raise SystemExit(0)", "left with exit code 0"),
        ("x = 'x' * (8 << 30)", "MemoryError"),
        ("open('big', 'wb').write(b'x' * (32 << 20))", "File too large"),
        ("assert 1 == 2, 'no'", "AssertionError: no"),
        ("def f(:", "SyntaxError"),
        ("import os; os.write(3, b'x' * 4096); os._exit(0)", "left with exit code 0"),
    ],
)
def test_programs_that_do_not_come_to_their_end(source: str, told: str) -> None:
    is_endless = told.startswith("did not end")  # the others need their time on a busy machine
    run = run_program(source, 0.5, start_s=0.7) if is_endless else run_program(source, 60)
    assert not run.is_passed
    assert told in run.report


def test_a_program_sees_no_variables_and_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "abc")
    run = run_program(
        "import os; print(os.environ); raise ValueError(os.getcwd() + str('SECRET_KEY' in os.environ))", 60
    )
    folder, _, is_seen = run.report.removeprefix("ValueError: ").rpartition("F")
    assert is_seen == "alse"
    assert not Path(folder).exists()


def test_the_test_of_a_task_decides() -> None:
    code = CodeTest("def f(x):\n", "def check(candidate):\n    assert candidate(2) == 4", "f")
    assert run_test("def f(x):\n    return x * x", code, 60).is_passed
    assert not run_test("def f(x):\n    return x + 1", code, 60).is_passed
