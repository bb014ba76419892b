"""Checks what the command line costs to start: how long `qanat --help` takes, and that it loads no torch.

startup_time.py     uses the interpreter that runs it; exit code 1 and a line for each fault
"""

from __future__ import annotations

import subprocess
import sys
import time

MAX_HELP_S = 0.3
NUM_TRIES = 5
HEAVY_MODULES = ("torch", "numpy", "tokenizers", "transformers")
TORCH_FREE = ("core", "config", "cache", "scheduler", "server", "cli")

# Imports every module of the packages that it is given, then names the heavy modules that this loaded.
IMPORT_ALL = """
import importlib, pkgutil, sys
names = sys.argv[1].split(",")
for package in names:
    module = importlib.import_module("qanat." + package)
    for info in pkgutil.walk_packages(module.__path__, module.__name__ + "."):
        if not info.name.endswith("__main__"):
            importlib.import_module(info.name)
print(" ".join(name for name in sys.argv[2].split(",") if name in sys.modules))
"""


def help_time_s() -> float:
    """Shortest of a few runs of `qanat --help`, in seconds: the machine may be busy, the program is not slower."""
    times = []
    for _ in range(NUM_TRIES):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "qanat.cli.main", "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def loaded_by(package: str, heavy: str) -> list[str]:
    """Which of the comma-separated modules are loaded once all of a package's modules are imported."""
    command = [sys.executable, "-c", IMPORT_ALL, package, heavy]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return result.stdout.split()


def main() -> int:
    """Runs the checks."""
    faults = []
    duration_s = help_time_s()
    print(f"qanat --help: {duration_s:.2f} s")
    if duration_s > MAX_HELP_S:
        faults.append(f"qanat --help took {duration_s:.2f} s at best; at most {MAX_HELP_S} s")
    for package in TORCH_FREE:
        heavy = HEAVY_MODULES if package == "cli" else ("torch",)
        faults.extend(
            f"importing qanat.{package} loads {name}" for name in loaded_by(package, ",".join(heavy))
        )
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
