"""The plots of one run, of a sweep and of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qanat.bench.online.comparison import RATES, TIMES
from qanat.bench.online.measures import INTENDED, SENT
from qanat.bench.report.requests import Request, at_once_over_time, cumulative, tokens_over_time
from qanat.bench.report.svg import Bar, Series, bar_plot, interval_plot, line_plot

TITLES = {**RATES, **TIMES}
"""Of the figures that a comparison shows."""
MAX_ROWS = 300
"""Requests that the timeline shows, spread evenly over the run."""
MOMENTS = ((INTENDED, "from the intended time"), (SENT, "from the sending"))
SECONDS = "seconds from the start of the run"
KINDS = (("wait", "waiting"), ("prefill", "to the first token"), ("decode", "decoding"), ("bad", "failed"))


def distributions(requests: Sequence[Request]) -> list[str]:
    """TTFT and E2EL from both moments, and ITL, each as the share of values up to a time."""
    plots = []
    for title, pick in (
        ("Time to first token", Request.ttft_s),
        ("End-to-end latency", Request.e2el_s),
    ):
        lines = []
        for moment, name in MOMENTS:
            values = [1e3 * value for one in requests if (value := pick(one, moment)) is not None]
            lines.append(Series(name, cumulative(values)))
        plots.append(line_plot(title, f"{title} (ms)", "requests up to it (%)", lines))
    gaps = [1e3 * gap for one in requests for gap in one.gaps_s]
    line = Series("all tokens but the first", cumulative(gaps))
    plots.append(line_plot("Inter-token latency", "Inter-token latency (ms)", "tokens up to it (%)", [line]))
    return plots


def timeline(requests: Sequence[Request]) -> list[str]:
    """What came out and was under way over time, and requests as bars."""
    chosen = sorted(requests, key=lambda request: request.intended_s)
    if len(chosen) > MAX_ROWS:
        chosen = [chosen[number * len(chosen) // MAX_ROWS] for number in range(MAX_ROWS)]
    rows = [_bars(request) for request in chosen]
    tokens = Series("output tokens", tokens_over_time(requests))
    under_way = Series("under way", at_once_over_time(requests, is_waiting=False))
    waiting = Series("waiting for the client", at_once_over_time(requests, is_waiting=True))
    return [
        line_plot("Throughput over time", SECONDS, "tokens a second", [tokens]),
        line_plot("Requests over time", SECONDS, "requests", [under_way, waiting]),
        bar_plot(f"Requests, {len(chosen)} of {len(requests)}", SECONDS, rows, KINDS),
    ]


def _bars(request: Request) -> list[Bar]:
    bars = [Bar(request.intended_s, request.sent_s, "wait")]
    if request.last_s is None:
        return [*bars, Bar(request.sent_s, request.end_s, "bad")]
    first_s = request.first_s if request.first_s is not None else request.last_s
    return [*bars, Bar(request.sent_s, first_s, "prefill"), Bar(first_s, request.last_s, "decode")]


def latency_against_rate(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each rate of a sweep took, with the intervals of the results; and what came out."""
    ordered = sorted(runs, key=lambda run: float(run["rate"]))
    plots = []
    for metric, title in (
        ("ttft", "Time to first token"),
        ("tpot", "Time per output token"),
        ("e2el", "End-to-end"),
    ):
        lines = [_by_rate(ordered, f"{part}_{metric}_ms", part) for part in ("mean", "median", "p99")]
        lines = [line for line in lines if line.points]
        if lines:
            plots.append(
                line_plot(f"{title} against rate", "requests a second, asked for", f"{title} (ms)", lines)
            )
    made = Series(
        "requests a second",
        [(float(run["rate"]), float(run["result"]["request_throughput"])) for run in ordered],
    )
    share = Series("share", [(float(run["rate"]), 100.0 * run["share_within_bounds"]) for run in ordered])
    plots.append(
        line_plot("Answered against asked for", "requests a second, asked for", "requests a second", [made])
    )
    plots.append(
        line_plot("Within bounds", "requests a second, asked for", "requests within bounds (%)", [share])
    )
    return plots


def _by_rate(runs: Sequence[Mapping[str, Any]], key: str, name: str) -> Series:
    told = [run for run in runs if isinstance(run["result"].get(key), int | float)]
    points = [(float(run["rate"]), float(run["result"][key])) for run in told]
    intervals = [run["result"].get("qanat", {}).get("confidence_95", {}).get(key) for run in told]
    return Series(name, points, [tuple(one) if one else None for one in intervals])


def differences_plot(found: Mapping[str, Mapping[str, float]]) -> str:
    """By how much B is faster, by figure."""
    rows = [
        (TITLES.get(key, key), one["percent"] - one["error_percent"], one["percent"],
         one["percent"] + one["error_percent"])
        for key, one in found.items()
    ]  # fmt: skip
    return interval_plot("Difference", "B is faster by (%), 95 % interval", rows)


def server_timeline(samples: Mapping[str, Any]) -> list[str]:
    """What the server's metrics said during the run; empty where they were not read."""
    times = samples.get("times_s") or []
    plots = []
    for title, unit, names in (
        ("Requests in the server", "requests", ("running", "waiting")),
        ("Output of the server", "tokens a second", ("output_tokens_per_s",)),
        ("Shares", "percent", ("kv_cache_used_percent", "prefix_hit_percent", "acceptance_percent")),
        ("Time in the queue", "ms, mean of those that began", ("queue_time_ms",)),
    ):
        lines = []
        for name in names:
            values = samples.get("series", {}).get(name) or []
            points = [(time, value) for time, value in zip(times, values, strict=False) if value is not None]
            if points:
                lines.append(Series(name.removesuffix("_percent").replace("_", " "), points))
        if lines:
            plots.append(line_plot(title, SECONDS, unit, lines))
    return plots
