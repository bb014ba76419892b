"""What the HTTP server costs, over an engine that costs next to nothing.

    python -m benchmarks.server [--streams 256] [--seconds 5] [--json FILE]

Run it from the checkout. The server has one core, this client another. Beside every figure stands the same one of the
same HTTP stack streaming constant bytes, in the same run with the same client. Three things are measured:

- Throughput: tokens streamed per second of the server's CPU time, so that other work on the machine does not count.
  `saturated`: the engine offers more than the server can deliver, and what waits for a stream is sent in one piece.
  `one by one`: the engine waits for the server, so that each token is a chunk of its own.
- JSON requests per second of CPU time.
- Under a steady load: how soon the abort of a client that hangs up reaches the engine, how long /metrics takes, the
  longest turn of the event loop, and how late a bare process beside it was woken.

The client never sleeps: waking an idle core costs more than the servers do and would count as theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.stream_client import (
    StreamConnection,
    count_for,
    get,
    http_request,
    open_streams,
    read_answer,
)

TARGET_RATIO = 0.6
TARGET_ABORT_S = 0.05
TARGET_METRICS_S = 0.005
TARGET_STALL_S = 0.1
SATURATING_TOKENS_PER_S = 100_000
STEADY_TOKENS_PER_S = 5_000
NUM_TOKENS = 4000
NUM_ABORTS = 64
NUM_SCRAPES = 50
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "constant": ("/stream", {"max_tokens": NUM_TOKENS}),
    "completions": ("/v1/completions", {"prompt": [1] * 16, "max_tokens": NUM_TOKENS, "stream": True}),
    "chat": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": NUM_TOKENS,
            "stream": True,
            "chat_template_kwargs": {"enable_thinking": False},
        },
    ),
}
JSON_BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "constant": ("/json", {}),
    "completions": ("/v1/completions", {"prompt": [1] * 16, "max_tokens": 1}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}),
}


@contextlib.contextmanager
def server(kind: str, period_s: float, core: int) -> Iterator[int]:
    """A server process; yields its port."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.stub_server"),
            *("constant" if kind == "constant" else "qanat", "--period-ms", str(period_s * 1e3)),
            *("--core", str(core)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


async def report(port: int) -> dict[str, Any]:
    """What the server process says of itself."""
    body, _ = await get(port, "/bench")
    values: dict[str, Any] = json.loads(body)
    return values


async def measure_streams(kind: str, period_s: float, options: argparse.Namespace) -> dict[str, float]:
    """Tokens and chunks per second of wall and of CPU time, with all streams running."""
    path, body = BODIES[kind]
    with server(kind, period_s, options.server_core) as port:
        connections = await open_streams(port, [http_request(path, body)] * options.streams)
        await asyncio.sleep(1.0)
        before, start_s = await report(port), time.monotonic()
        chunks_per_s = await count_for(options.seconds, lambda: sum(c.num_events for c in connections))
        after, wall_s = await report(port), time.monotonic() - start_s
        for connection in connections:
            connection.cut()
    cpu_s = after["cpu_s"] - before["cpu_s"]
    num_tokens = after["num_tokens"] - before["num_tokens"]
    return {
        "tokens_per_cpu_s": num_tokens / cpu_s,
        "chunks_per_cpu_s": chunks_per_s * wall_s / cpu_s,
        "tokens_per_s": num_tokens / wall_s,
        "chunks_per_s": chunks_per_s,
        "cpu_share": cpu_s / wall_s,
    }


async def measure_json(kind: str, options: argparse.Namespace) -> dict[str, float]:
    """Whole answers per second, over 32 connections that ask again and again."""
    path, body = JSON_BODIES[kind]
    request = http_request(path, body)
    num_answers = 0

    async def ask(port: int) -> None:
        nonlocal num_answers
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.closing(writer):
            while True:
                writer.write(request)
                await read_answer(reader)
                num_answers += 1

    with server(kind, 0.0, options.server_core) as port:
        clients = [asyncio.create_task(ask(port)) for _ in range(32)]
        await asyncio.sleep(0.5)
        before, start_s = await report(port), time.monotonic()
        rate = await count_for(options.seconds, lambda: num_answers)
        after, wall_s = await report(port), time.monotonic() - start_s
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    return {"requests_per_s": rate, "requests_per_cpu_s": rate * wall_s / (after["cpu_s"] - before["cpu_s"])}


async def measure_steady(options: argparse.Namespace) -> dict[str, float]:
    """Aborts, /metrics and stalls at a load that the server carries with ease."""
    path, body = BODIES["chat"]
    period_s = options.streams / STEADY_TOKENS_PER_S
    requests = [http_request(path, body, f"steady-{i}") for i in range(options.streams)]
    with server("chat", period_s, options.server_core) as port, bare_heartbeat(options.server_core) as noise:
        connections = await open_streams(port, requests)
        await report(port)  # the longest turn so far belongs to the opening of the streams
        scrapes_s = []
        for _ in range(NUM_SCRAPES):
            _, seconds = await get(port, "/metrics")
            scrapes_s.append(seconds)
            await asyncio.sleep(0.02)
        cuts_s = await cut_some(connections)
        await asyncio.sleep(1.0)
        values = await report(port)
        for connection in connections:
            connection.cut()
        noise_s = noise()
    latencies_s = [
        arrived_s - cuts_s[index]
        for name, arrived_s in values["abort_times_s"].items()
        if (index := name.partition("steady-")[2].partition("-")[0]) in cuts_s
    ]
    return {
        "num_aborts_seen": len(latencies_s),
        "abort_median_s": statistics.median(latencies_s),
        "abort_longest_s": max(latencies_s),
        "metrics_median_s": statistics.median(scrapes_s),
        "metrics_longest_s": max(scrapes_s),
        "longest_stall_s": values["longest_stall_s"],
        "machine_noise_s": noise_s,
    }


async def cut_some(connections: list[StreamConnection]) -> dict[str, float]:
    """Cuts the first connections one after the other; returns the times by their number."""
    cuts_s = {}
    for index, connection in enumerate(connections[:NUM_ABORTS]):
        cuts_s[str(index)] = connection.cut()
        await asyncio.sleep(0.01)
    return cuts_s


@contextlib.contextmanager
def bare_heartbeat(core: int) -> Iterator[Any]:
    """A process that only sleeps and looks how late it was woken; yields a function that ends and reads it."""
    program = (
        "import os,sys,time,threading\n"
        f"os.sched_setaffinity(0,{{{core}}})\n"
        "stop=threading.Event()\n"
        "threading.Thread(target=lambda:(sys.stdin.read(),stop.set()),daemon=True).start()\n"
        "longest=0.0\n"
        "while not stop.is_set():\n"
        "    due=time.monotonic()+0.002; time.sleep(0.002); longest=max(longest,time.monotonic()-due)\n"
        "print(longest)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield lambda: float(process.communicate()[0])
    finally:
        process.kill()
        process.wait()


async def keep_awake() -> None:
    """Keeps this client's core from going to sleep."""
    while True:
        await asyncio.sleep(0)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Everything, by name."""
    awake = asyncio.create_task(keep_awake())
    saturating_s = options.streams / SATURATING_TOKENS_PER_S
    results: dict[str, Any] = {"constant": await measure_streams("constant", 0.0, options)}
    for kind in ("completions", "chat"):
        results[f"{kind}, saturated"] = await measure_streams(kind, saturating_s, options)
        results[f"{kind}, one by one"] = await measure_streams(kind, 0.0, options)
    again = await measure_streams("constant", 0.0, options)
    results["constant"] = max(results["constant"], again, key=lambda values: values["tokens_per_cpu_s"])
    results["json"] = {kind: await measure_json(kind, options) for kind in JSON_BODIES}
    awake.cancel()
    results["steady"] = await measure_steady(options)
    return results


def machine() -> dict[str, Any]:
    """What this ran on."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": names[0] if names else platform.machine(),
        "num_cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def misses(results: dict[str, Any]) -> list[str]:
    """Targets that were missed, in words."""
    constant = results["constant"]["tokens_per_cpu_s"]
    steady = results["steady"]
    found = [
        f"{kind}: {ratio:.2f} of constant bytes, target {TARGET_RATIO}"
        for kind in ("completions", "chat")
        if (ratio := results[f"{kind}, saturated"]["tokens_per_cpu_s"] / constant) < TARGET_RATIO
    ]
    if steady["abort_longest_s"] > TARGET_ABORT_S or steady["num_aborts_seen"] < NUM_ABORTS:
        found.append(f"aborts: {steady['num_aborts_seen']} seen, longest {steady['abort_longest_s']:.3f} s")
    if steady["metrics_median_s"] > TARGET_METRICS_S:
        found.append(f"/metrics: median {steady['metrics_median_s']:.4f} s")
    if steady["longest_stall_s"] - steady["machine_noise_s"] > TARGET_STALL_S:
        found.append(f"stall: {steady['longest_stall_s']:.3f} s")
    return found


def show(results: dict[str, Any]) -> None:
    """Prints the tables."""
    write = sys.stdout.write
    write(
        f"{'streams':26} {'tokens/CPU s':>13} {'chunks/CPU s':>13} {'tokens/s':>10} {'CPU':>5} {'ratio':>6}\n"
    )
    constant = results["constant"]["tokens_per_cpu_s"]
    for name, values in results.items():
        if "tokens_per_cpu_s" not in values:
            continue
        write(
            f"{name:26} {values['tokens_per_cpu_s']:13.0f} {values['chunks_per_cpu_s']:13.0f} "
            f"{values['tokens_per_s']:10.0f} {values['cpu_share']:5.2f} {values['tokens_per_cpu_s'] / constant:6.2f}\n"
        )
    write(f"\n{'JSON answers':26} {'per CPU s':>13} {'per s':>13}\n")
    for name, values in results["json"].items():
        write(f"{name:26} {values['requests_per_cpu_s']:13.0f} {values['requests_per_s']:13.0f}\n")
    write("\nsteady load\n")
    for name, value in results["steady"].items():
        write(f"{name:26} {value:13.4f}\n")


def main() -> int:
    """Measures and prints; the exit code is 1 if a target is missed."""
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        description="Cost of the HTTP server beside the same stack and constant bytes."
    )
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default 5)")
    parser.add_argument("--server-core", type=int, default=cores[0])
    parser.add_argument("--client-core", type=int, default=cores[-1])
    parser.add_argument("--json", help="file for all figures")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.client_core})
    results = {"machine": machine(), **uvloop.run(measure(options))}
    sys.stdout.write(f"{results['machine']}\n\n")
    show({name: values for name, values in results.items() if name != "machine"})
    missed = misses(results)
    for line in missed:
        sys.stdout.write(f"missed: {line}\n")
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
