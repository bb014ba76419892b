"""How fast logs are read by `qanat deploy diagnose`, and how much memory that takes.

    python benchmarks/diagnose_log.py [--size-mb 60] [--repeat 3]

Three logs: mostly answered requests; the same with a line of vLLM's statistics every hundred lines; and nothing but
tracebacks (a tenth of the size). Each is read by a process of its own; shown is the most per second of CPU time over
the repeats, less what the program takes for an empty start, and the most memory that a process held.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

START = (
    "(APIServer pid=71) INFO 11-17 08:12:05 [api_server.py:1896] vLLM API server version 0.23.0\n"
    "(APIServer pid=71) INFO:     Application startup complete.\n"
)
ANSWERED = '(APIServer pid=71) INFO:     10.0.0.{}:5{:04} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
STATISTICS = (
    "(APIServer pid=71) INFO 11-17 08:15:05 [loggers.py:127] Engine 000: Avg prompt throughput: {}.0 tokens/s, "
    "Avg generation throughput: 611.3 tokens/s, Running: 16 reqs, Waiting: 0 reqs, GPU KV cache usage: 12.1%, "
    "Prefix cache hit rate: 0.0%\n"
)
TRACEBACK = (
    "(EngineCore_DP0 pid=92) ERROR 11-17 08:16:{:02} [core.py:710] Traceback (most recent call last):\n"
    '(EngineCore_DP0 pid=92) ERROR 11-17 08:16:{:02} [core.py:710]   File "/a/b.py", line {}, in run\n'
    "(EngineCore_DP0 pid=92) ERROR 11-17 08:16:{:02} [core.py:710]     step()\n"
    "(EngineCore_DP0 pid=92) ERROR 11-17 08:16:{:02} [core.py:710] RuntimeError: what number {} is\n"
)


def answered() -> Iterator[str]:
    """Lines about answered requests, without an end."""
    return (ANSWERED.format(number % 250, number % 10_000) for number in cycle(range(100_000)))


def with_statistics() -> Iterator[str]:
    """The same, every hundredth line another."""
    for number, line in enumerate(answered()):
        yield STATISTICS.format(number) if number % 100 == 99 else line


def tracebacks() -> Iterator[str]:
    """Tracebacks one after another."""
    for number in cycle(range(100_000)):
        second = number % 60
        yield TRACEBACK.format(second, second, number, second, second, number)


LOGS = {
    "answered requests": (answered, 1),
    "with statistics": (with_statistics, 1),
    "tracebacks": (tracebacks, 10),
}


def write(path: Path, lines: Iterator[str], size_bytes: int) -> int:
    """Writes a log of about a size; returns its bytes."""
    with path.open("w", encoding="utf-8") as file:
        file.write(START)
        while file.tell() < size_bytes:
            file.write("".join(islice(lines, 1000)))
        return file.tell()


def cpu_s(path: Path) -> float:
    """Seconds of CPU time of one diagnosis."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "qanat", "deploy", "diagnose", str(path), "--json"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, timeout=600, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"the diagnosis of {path.name} ended with {done.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Prints a line per log, and the memory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size-mb", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        short = Path(folder) / "short.log"
        short.write_text(START)
        start_s = min(cpu_s(short) for _ in range(options.repeat))
        for name, (lines, part) in LOGS.items():
            log = Path(folder) / "long.log"
            size_bytes = write(log, lines(), options.size_mb * 1_000_000 // part)
            took_s = min(cpu_s(log) for _ in range(options.repeat)) - start_s
            sys.stdout.write(
                f"{name:18} {size_bytes / 1e6 / max(took_s, 1e-3):6.1f} MB per second of CPU time\n"
            )
    memory_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
    sys.stdout.write(f"most memory        {memory_mb:6.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
