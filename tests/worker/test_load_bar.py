"""The bar is for people: it appears on a terminal and nowhere else."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys

SCRIPT = "from qanat.worker.load_bar import LoadBar\nwith LoadBar('loading weights') as bar: bar.update(3, 7)"


def test_nothing_is_written_where_there_is_no_terminal() -> None:
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("", "")


def test_a_terminal_shows_how_far_it_is() -> None:
    reader, writer = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    subprocess.run([sys.executable, "-c", SCRIPT], stderr=writer, env=environment, check=True)
    os.close(writer)
    shown = ""
    with contextlib.suppress(OSError):  # the other end is closed, and all is read
        while part := os.read(reader, 65536):
            shown += part.decode()
    os.close(reader)
    assert "loading weights" in shown
    assert "3/7" in shown
