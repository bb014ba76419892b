"""The server of `delayed_server` as a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DelayedServer:
    """A running one."""

    port: int

    def record(self) -> dict[str, Any]:
        """What it wrote down, by the request's id."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/record", timeout=60) as reply:
            value: dict[str, Any] = json.load(reply)
            return value


@contextlib.contextmanager
def delayed_server() -> Iterator[DelayedServer]:
    """Starts it, and ends it after."""
    command = [sys.executable, "-m", "tests.support.delayed_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield DelayedServer(int(process.stdout.readline()))
        finally:
            process.kill()
