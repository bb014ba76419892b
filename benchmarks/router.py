"""The router on one core, beside another proxy, over the same stub engines.

    python -m benchmarks.router [--peer PROXY.py --peer-python PYTHON] [--rounds 3] [--seconds 3] [--json FILE]

Every target gets the same load in turn, round after round, and its median counts. Each is pinned to --router-core,
engines and clients to --other-core. `plain` is the router's transport with no policies, `router` is `qanat router`,
`pair` is `qanat router` over prefill and decode engines, `peer` is the other proxy: a script that takes
--prefiller-hosts, --prefiller-ports, --decoder-hosts, --decoder-ports, --host and --port (vLLM-Ascend's example
does), and asks two engines for each request as `pair` does. Besides what a client sees (requests and tokens each
second) the CPU time that each request and token costs is measured: it hardly depends on what else the machine does.
The targets of design.md, section 7: 8 times the requests and 6 times the tokens of the peer; at half load 99 of 100
requests, and tokens, take at most 5 ms longer than straight from the engines. Meanwhile some clients leave, which
their engine is to see within 50 ms.

Elsewhere on the machine there is often other work. `chrt -f 1` before the command gives both cores to the
measurement while it runs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.router_targets import Target, engines, load, started

KINDS = ("json", "stream")
JSON_TARGET, STREAM_TARGET, ADDED_TARGET_MS, ABORT_TARGET_MS = 8.0, 6.0, 5.0, 50.0
NUM_ABORTS = 20
Figures = dict[str, dict[str, Any]]


def one_round(options: argparse.Namespace, targets: list[Target]) -> Figures:
    """Every kind of load on every target, as much as it takes: `{target: {kind_figure: value}}`."""
    figures: Figures = {target.name: {} for target in targets}
    for kind, connections in (("json", options.connections), ("stream", options.streams)):
        for target in targets:
            cpu_s = target.cpu_s()
            found = load(options, target.ports, kind, connections)
            cpu_us = (target.cpu_s() - cpu_s) * 1e6
            mine = figures[target.name]
            if kind == "json":
                mine["requests_per_s"] = found["requests_per_s"]
                mine["cpu_us_per_request"] = cpu_us / max(1, found["num_total_requests"])
            else:
                mine["tokens_per_s"] = found["tokens_per_s"]
                mine["cpu_us_per_token"] = cpu_us / max(1, found["num_total_tokens"])
            mine["num_errors"] = mine.get("num_errors", 0) + found["num_errors"]
    return figures


def median_of(rounds: list[Figures]) -> Figures:
    """Figure by figure."""
    return {
        name: {figure: statistics.median(each[name][figure] for each in rounds) for figure in rounds[0][name]}
        for name in rounds[0]
    }


def half_load(options: argparse.Namespace, targets: list[Target], capacity: Figures) -> Figures:
    """What each target adds to the way of requests and tokens, at half of what it can do."""
    direct = targets[0]
    added: Figures = {}
    for target in targets[1:]:
        if target.name == "peer":
            continue
        mine = added[target.name] = {}
        rate = capacity[target.name]["requests_per_s"] / 2
        num_streams = max(1, int(capacity[target.name]["tokens_per_s"] / 2 * options.period_ms / 1e3))
        aborts = ["--aborts", str(NUM_ABORTS), "--engine-port", str(direct.ports[0])]
        for kind, connections, extra in (
            ("json", options.connections, ["--rate", f"{rate:.0f}"]),
            ("stream", num_streams, ["--delays", *aborts]),
        ):
            mine[f"{kind}_load"] = rate if kind == "json" else num_streams
            rounds = []
            for _ in range(options.rounds):
                straight = load(options, direct.ports, kind, connections, *extra)
                through = load(options, target.ports, kind, connections, *extra)
                mine["slowest_abort_ms"] = max(mine.get("slowest_abort_ms", 0.0), through["slowest_abort_ms"])
                rounds.append([through[figure] - straight[figure] for figure in ("p50_ms", "p99_ms")])
            mine[f"{kind}_added_p50_ms"], mine[f"{kind}_added_p99_ms"] = (
                statistics.median(column) for column in zip(*rounds, strict=True)
            )
    return added


def report(capacity: Figures, added: Figures) -> bool:
    """Prints both tables; False if a target of design.md is missed."""
    say(f"{'':8}{'requests/s':>12}{'us CPU each':>13}{'tokens/s':>12}{'us CPU each':>13}{'errors':>8}")
    for name, mine in capacity.items():
        say(
            f"{name:8}{mine['requests_per_s']:12.0f}{mine['cpu_us_per_request']:13.1f}"
            f"{mine['tokens_per_s']:12.0f}{mine['cpu_us_per_token']:13.2f}{mine['num_errors']:8.0f}"
        )
    is_met = True
    peer = capacity.get("peer")
    for name, mine in capacity.items():
        if peer is None or name in ("direct", "peer"):
            continue
        requests = mine["requests_per_s"] / peer["requests_per_s"]
        tokens = mine["tokens_per_s"] / peer["tokens_per_s"]
        say(
            f"{name} / peer: {requests:.1f} x requests (CPU time: "
            f"{peer['cpu_us_per_request'] / mine['cpu_us_per_request']:.1f} x), {tokens:.1f} x tokens (CPU time: "
            f"{peer['cpu_us_per_token'] / mine['cpu_us_per_token']:.1f} x)"
        )
        is_met &= requests >= JSON_TARGET and tokens >= STREAM_TARGET
    for name, mine in added.items():
        for kind, unit in (("json", "requests/s"), ("stream", "streams")):
            say(
                f"{name} at {mine[f'{kind}_load']:.0f} {unit}: adds {mine[f'{kind}_added_p50_ms']:.2f} ms (p50), "
                f"{mine[f'{kind}_added_p99_ms']:.2f} ms (p99)"
            )
            is_met &= mine[f"{kind}_added_p99_ms"] <= ADDED_TARGET_MS
        say(f"{name}: the engine sees that a client left after at most {mine['slowest_abort_ms']:.2f} ms")
        is_met &= mine["slowest_abort_ms"] <= ABORT_TARGET_MS
    return is_met


def say(line: str) -> None:
    """A line for the one who runs this."""
    sys.stdout.write(line + "\n")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--targets", nargs="+", default=["plain", "router", "pair"])
    parser.add_argument(
        "--peer", type=Path, help="the other proxy's script; it is not part of this repository"
    )
    parser.add_argument("--peer-python", default=sys.executable, help="an interpreter that has what it needs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64, help="of a stream, on average")
    parser.add_argument("--period-ms", type=float, default=5.0, help="from token to token of a stream")
    parser.add_argument("--connections", type=int, default=64, help="clients that ask for JSON")
    parser.add_argument("--streams", type=int, default=256, help="clients that stream")
    cores = sorted(os.sched_getaffinity(0))
    parser.add_argument("--router-core", type=int, default=cores[-1])
    parser.add_argument("--other-core", type=int, default=cores[0])
    parser.add_argument("--json", type=Path, help="a file for the figures")
    return parser.parse_args()


def main() -> int:
    """Measures and prints; 1 if a target of design.md is missed or an answer was wrong."""
    options = parse_arguments()
    say(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with engines(options) as ports, started(options, ports) as targets:
        capacity = median_of([one_round(options, targets) for _ in range(options.rounds)])
        added = half_load(options, targets, capacity)
    say(f"load average after: {os.getloadavg()[0]:.1f}")
    is_met = report(capacity, added)
    if options.json is not None:
        options.json.write_bytes(
            msgspec.json.format(msgspec.json.encode({"capacity": capacity, "added": added}))
        )
    return 0 if is_met and not any(mine["num_errors"] for mine in capacity.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
