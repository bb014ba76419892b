"""Processes that stand still for a while."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

WAIT_S = 60.0


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """No thread of the process does anything within the block; the signal alone takes effect a little later."""
    os.kill(pid, signal.SIGSTOP)
    try:
        deadline_s = time.monotonic() + WAIT_S
        while _states(pid) != {"T"}:
            assert time.monotonic() < deadline_s, f"{pid} does not stop"
            time.sleep(0.001)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _states(pid: int) -> set[str]:
    """Linux's letters for what the threads of a process do."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            found.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return found
