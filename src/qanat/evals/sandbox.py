"""Runs a program that a model wrote, in a process that can do little, and says whether it came to its end."""

from __future__ import annotations

import json
import math
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qanat.evals.item import CodeTest

CHILD = Path(__file__).with_name("sandbox_child.py")
MAX_MEMORY_BYTES = 2 * 2**30
MAX_FILE_BYTES = 16 * 2**20
MAX_OPEN_FILES = 64
MAX_REPORT_BYTES = 2000
"""Of what the program wrote to standard error, so much of the end is kept."""
START_S = 3.0
"""Seconds that the process may take to start."""
LAYERS = {"network": "network", "files": "files", "processes": "processes and signals"}


@dataclass(frozen=True)
class ProgramRun:
    """What became of a program.

    Attributes:
        is_passed: it ran to its end.
        report: why it did not; empty where it did.
        open_layers: what the process could not be kept from on this machine: network, files, processes and signals.
    """

    is_passed: bool
    report: str = ""
    open_layers: tuple[str, ...] = ()


def run_test(program: str, code: CodeTest, timeout_s: float) -> ProgramRun:
    """Whether a program's function passes its test."""
    return run_program(f"{program}\n\n{code.test}\n\ncheck({code.entry_point})\n", timeout_s)


def run_program(source: str, timeout_s: float, start_s: float = START_S) -> ProgramRun:
    """Runs a program; it passes if it comes to its end, not if it leaves early with a good exit code.

    The process has a folder of its own that is deleted afterwards, no variables, and bounds of CPU time, memory, sizes
    of files and open files. Where the kernel lets it, it has no network, starts no processes and reaches no others,
    reads the interpreter and the system's libraries only, and writes into its folder only.

    Args:
        source: of the program.
        timeout_s: for all of it; the process is killed then.
        start_s: that the process may take beside that.
    """
    mark = secrets.token_hex(16)
    limits = {
        "RLIMIT_CPU": math.ceil(timeout_s) + 1,
        "RLIMIT_AS": MAX_MEMORY_BYTES,
        "RLIMIT_FSIZE": MAX_FILE_BYTES,
        "RLIMIT_NOFILE": MAX_OPEN_FILES,
    }
    with tempfile.TemporaryDirectory(prefix="qanat-eval-", ignore_cleanup_errors=True) as folder:
        order = {"folder": folder, "limits": limits, "source": source, "end_mark": mark}
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as told:
            code = _run_child(json.dumps(order).encode(), folder, errors, told, timeout_s + start_s)
            told.seek(0)
            head, _, end = told.read(MAX_REPORT_BYTES).decode(errors="replace").partition("\n")
            size = errors.seek(0, os.SEEK_END)
            errors.seek(max(0, size - MAX_REPORT_BYTES))
            report = errors.read().decode(errors="replace").strip()
    held: dict[str, Any] = json.loads(head) if head.startswith("{") else dict.fromkeys(LAYERS, True)
    open_layers = tuple(text for name, text in LAYERS.items() if not held.get(name))
    if end == mark:
        return ProgramRun(True, open_layers=open_layers)
    return ProgramRun(False, _reason(code, report, timeout_s), open_layers)


def _run_child(order: bytes, folder: str, errors: Any, told: Any, timeout_s: float) -> int | None:
    """The exit code of the process; None where its time was over."""
    process = subprocess.Popen(
        # The shell's only work is to put the report on descriptor 3, and to be replaced.
        ["/bin/sh", "-c", 'exec "$0" -I "$1" 3>&1 >/dev/null', sys.executable, str(CHILD)],
        stdin=subprocess.PIPE,
        stdout=told,
        stderr=errors,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "LC_ALL": "C.UTF-8"},
        start_new_session=True,
    )
    try:
        process.communicate(order, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return None
    except BrokenPipeError:
        process.wait(timeout_s)
    finally:
        _kill(process)
    return process.returncode


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and whatever it could start."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _reason(code: int | None, report: str, timeout_s: float) -> str:
    if code is None or code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"it did not end within {timeout_s:g} s"
    if report:
        return report.splitlines()[-1]
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it left with exit code {code} before its end"
