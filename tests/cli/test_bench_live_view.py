"""The view of a running benchmark: it never makes the client wait, and is there on a terminal."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from qanat.cli.bench_actions.live_view import LineSender, rows_of, view_of
from tests.support.delayed_process import delayed_server

FIGURES: dict[str, Any] = {
    "planned": 10,
    "sent": 4,
    "running": 2,
    "done": 2,
    "errors": 1,
    "passed_s": 1.5,
    "tokens_per_s": 80.0,
    "pieces_per_s": 90.0,
    "ttft_ms": [1.0, 2.0, 3.0],
    "itl_ms": None,
}


def test_the_figures_are_named() -> None:
    assert rows_of(FIGURES) == [
        ("requests", "4 sent, 2 running, 2 done, 1 errors of 10"),
        ("time", "1.5 s"),
        ("output", "80.0 tokens/s (server), 90.0 chunks/s"),
        ("TTFT, about", "p50 1.0, p90 2.0, p99 3.0 ms"),
        ("ITL, about", "-"),
    ]


def test_each_row_has_a_line_of_its_own() -> None:
    with (console := Console(width=100, file=io.StringIO())).capture() as capture:
        console.print(view_of(FIGURES))
    lines = capture.get().splitlines()
    assert len(lines) == 6
    assert lines[1].strip().split(None, 1) == ["requests", "4 sent, 2 running, 2 done, 1 errors of 10"]


def test_a_reader_that_is_behind_or_gone_holds_nothing_up() -> None:
    reader, writer = os.pipe()
    sender = LineSender(writer)
    for _ in range(5000):  # far more than a pipe holds
        sender.send(FIGURES)
    held = os.read(reader, 2**22)
    assert held.startswith(b'{"planned": 10')
    assert held.endswith(b"}\n"), "a line is there whole or not at all"
    os.close(reader)
    sender.send(FIGURES)
    sender.send(FIGURES)
    os.close(writer)


@pytest.mark.slow
def test_a_run_on_a_terminal_shows_it_and_clears_it() -> None:
    with delayed_server() as stub:
        master, slave = pty.openpty()
        script = '{"script": [[100, 1], [400, 1], [400, 1], [400, 1]]}'
        flags = ["--port", str(stub.port), "--extra-body", script, "--input-len", "5", "--num-prompts", "12"]
        command = [sys.executable, "-m", "qanat", "bench", "serve", *flags, "--max-concurrency", "2"]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
        run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, env=environment)
        os.close(slave)
        shown = b""
        try:
            while piece := os.read(master, 65536):
                shown += piece
        except OSError:
            pass  # all writing ends are closed
        output = run.communicate(timeout=60)[0]
        os.close(master)
    assert run.returncode in (0, 3), shown
    assert b"TTFT, about" in shown
    assert b"running" in shown
    assert b"Verdict" in output
    assert b"TTFT, about" not in output
