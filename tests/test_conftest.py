from __future__ import annotations

import subprocess
import sys


def test_what_tests_start_can_be_interrupted_though_the_suite_runs_in_the_background() -> None:
    child = "import signal; print(*(signal.getsignal(n) is signal.SIG_IGN for n in (2, 1)))"
    suite = f"import subprocess, sys, tests.conftest; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    shell = "trap '' INT HUP; exec \"$@\""
    command = ["bash", "-c", shell, "bash", sys.executable, "-c", suite]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["False"] * 2
