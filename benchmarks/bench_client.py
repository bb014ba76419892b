"""How many streamed tokens a second the client of `qanat bench serve` takes on one core, beside an aiohttp client.

    python -m benchmarks.bench_client [--requests 2000] [--concurrency 64] [--rounds 3] [--aiohttp-python PYTHON]

The server (benchmarks/token_server.py) has one core, the client under test another. It gives every stream one token in
each turn of its event loop: `one by one` at a rate of 80,000 tokens a second, so that each token comes as a piece of
its own, `saturated` as fast as it can, so that a client that falls behind gets many at once. Each round runs our client
on uvloop, our client on the standard event loop (the base install), and an aiohttp client that reads JSON as it comes,
one after the other. Figures: tokens per second of wall time; of the client's processor time, for ours without and with
the reading after the run; and tokens per piece, which says how many came with one call of the socket.

Without --aiohttp-python, a Python that has aiohttp, that part is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET_TOKENS_PER_S = 80_000
HERE = Path(__file__).parent
PLAIN_LOOP = (
    "import sys; sys.modules['uvloop'] = None; from qanat.cli.main import main; sys.exit(main(sys.argv[1:]))"
)
"""Runs `qanat` as if uvloop were not installed."""
WITH_UVLOOP = "import sys; from qanat.cli.main import main; sys.exit(main(sys.argv[1:]))"


@contextlib.contextmanager
def server(core: int, rate: float) -> Iterator[int]:
    """The server's port."""
    command = [*(sys.executable, "-m", "benchmarks.token_server"), "--core", str(core), "--rate", str(rate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def run_ours(program: str, port: int, options: argparse.Namespace) -> dict[str, float]:
    """Our client's figures."""
    arguments = [
        *(
            "bench",
            "serve",
            "--port",
            str(port),
            "--backend",
            "openai-chat",
            "--num-prompts",
            str(options.requests),
        ),
        *(
            "--max-concurrency",
            str(options.concurrency),
            "--output-len",
            str(options.tokens),
            "--input-len",
            "3",
        ),
        *("--num-warmups", str(options.concurrency), "--json", "--disable-tqdm"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, {options.client_core}),
    )
    if not done.stdout:
        raise RuntimeError(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    expected = options.requests * options.tokens
    if result["total_output_tokens"] != expected:
        raise RuntimeError(
            f"{result['total_output_tokens']} tokens where {expected} were sent: {done.stderr}"
        )
    client = result["qanat"]["client"]
    cpu_s = client["cpu_share"] * result["duration"]
    return {
        "tokens_per_s": result["output_throughput"],
        "tokens_per_cpu_s": expected / cpu_s,
        "tokens_per_cpu_s_with_reading": expected / (cpu_s + client["reading_cpu_s"]),
        "tokens_per_piece": expected / client["num_pieces"],
    }


def run_aiohttp(port: int, options: argparse.Namespace) -> dict[str, float]:
    """The aiohttp client's figures."""
    numbers = (port, options.requests, options.concurrency, options.tokens, options.client_core)
    command = [options.aiohttp_python, str(HERE / "aiohttp_client.py"), *map(str, numbers)]
    result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {
        "tokens_per_s": result["num_tokens"] / result["wall_s"],
        "tokens_per_cpu_s": result["num_tokens"] / result["cpu_s"],
    }


def main() -> int:
    """Runs the rounds; the exit code says whether the target was reached."""
    parser = argparse.ArgumentParser(description="Streamed tokens a second of benchmark clients.")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--aiohttp-python", help="a Python that has aiohttp")
    parser.add_argument("--json", help="file to write all figures to")
    options = parser.parse_args()
    figures = {
        "one by one": measure(options, TARGET_TOKENS_PER_S),
        "saturated": measure(options, 0.0),
    }
    for case, clients in figures.items():
        sys.stdout.write(f"{case}\n")
        for name, values in clients.items():
            listed = ", ".join(f"{key} {value:,.1f}" for key, value in values.items())
            sys.stdout.write(f"  {name:20}{listed}\n")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2), encoding="utf-8")
    is_reached = figures["one by one"]["ours, base install"]["tokens_per_cpu_s"] >= TARGET_TOKENS_PER_S
    sys.stdout.write(
        f"target {TARGET_TOKENS_PER_S:,} tokens/s on one core: {'reached' if is_reached else 'missed'}\n"
    )
    return 0 if is_reached else 1


def measure(options: argparse.Namespace, rate: float) -> dict[str, dict[str, float]]:
    """Median figures of each client, against a server with this rate; 0 for no bound."""
    rounds: dict[str, list[dict[str, float]]] = {"ours, uvloop": [], "ours, base install": [], "aiohttp": []}
    with server(options.server_core, rate) as port:
        for _ in range(options.rounds):
            rounds["ours, uvloop"].append(run_ours(WITH_UVLOOP, port, options))
            rounds["ours, base install"].append(run_ours(PLAIN_LOOP, port, options))
            if options.aiohttp_python:
                rounds["aiohttp"].append(run_aiohttp(port, options))
    return {
        name: {key: statistics.median(one[key] for one in found) for key in found[0]}
        for name, found in rounds.items()
        if found
    }


if __name__ == "__main__":
    sys.exit(main())
