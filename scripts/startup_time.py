"""Checks what the command line costs to start: how long `qanat --help` takes, and that it loads no torch.

startup_time.py     uses the interpreter that runs it; exit code 1 and a line for each fault
"""

from __future__ import annotations

import subprocess
import sys
import time

MAX_HELP_S = 0.3
NUM_TRIES = 5
TORCH_FREE = ("core", "config", "cache", "deploy", "scheduler", "server", "bench", "cli")

# Imports every module of a package; its exit code says whether that loaded torch.
IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module("qanat." + sys.argv[1])
for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(info.name)
sys.exit("torch" in sys.modules)
"""


def help_time_s() -> float:
    """Shortest of a few runs of `qanat --help`, in seconds: the machine may be busy, the program is not slower."""
    times = []
    for _ in range(NUM_TRIES):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "qanat.cli.main", "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def loads_torch(package: str) -> bool:
    """Whether importing all modules of a package of qanat loads torch."""
    result = subprocess.run([sys.executable, "-c", IMPORT_ALL, package], capture_output=True, text=True)
    if result.stderr:
        raise RuntimeError(result.stderr)
    return result.returncode == 1


def main() -> int:
    """Runs the checks."""
    duration_s = help_time_s()
    print(f"qanat --help: {duration_s:.2f} s")
    faults = [f"importing qanat.{package} loads torch" for package in TORCH_FREE if loads_torch(package)]
    if duration_s > MAX_HELP_S:
        faults.append(f"qanat --help took {duration_s:.2f} s at best; at most {MAX_HELP_S} s")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
