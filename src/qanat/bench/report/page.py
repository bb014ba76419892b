"""The report as one HTML page: no scripts, nothing fetched, and well-formed as XML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from qanat.bench.online.measures import INTENDED, METRICS, SENT
from qanat.bench.report.plots import (
    TITLES,
    differences_plot,
    distributions,
    latency_against_rate,
    server_timeline,
    timeline,
)
from qanat.bench.report.requests import requests_of
from qanat.bench.report.style import STYLE
from qanat.bench.report.svg import text_of
from qanat.config.flag_names import flag_of

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""A browser fetches nothing for the page, whatever is in it."""
FACTS = {
    "model_id": "model",
    "backend": "API",
    "label": "label",
    "date": "date",
    "num_prompts": "requests",
    "request_rate": "rate (requests/s)",
    "burstiness": "burstiness",
    "max_concurrency": "concurrency at most",
}
TOTALS = {
    "completed": "answered",
    "failed": "failed",
    "duration": "duration (s)",
    "request_throughput": "requests/s",
    "request_goodput": "good requests/s",
    "output_throughput": "output tokens/s",
    "total_token_throughput": "tokens/s, prompts too",
    "max_output_tokens_per_s": "fullest second (tokens)",
    "max_concurrent_requests": "most at one time",
}
SPECULATION = {
    "spec_decode_acceptance_rate": "accepted drafts (%)",
    "spec_decode_acceptance_length": "tokens a step",
}
NAMES = {INTENDED: "the schedule", SENT: "the sending"}
COUNTERS = {"num_preemptions": "preemptions", "prompt_tokens": "prompt tokens"}


def page_of(results: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The page.

    Args:
        results: title and content of results of `bench serve`, `compare` or `sweep`, as they are saved.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: one of them is no such result.
    """
    parts = [section for title, result in results for section in _result(title, result)]
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>Benchmark report</title><style>{STYLE}</style></head>"
    )
    return f"{head}<body><h1>Benchmark report</h1>{''.join(parts)}</body></html>\n"


def _result(title: str, result: Mapping[str, Any]) -> list[str]:
    heading = f"<h2>{text_of(title)}</h2>"
    if "runs" in result:
        return [heading, *_sweep(result)]
    if "pairs" in result:
        return [heading, *_comparison(result)]
    return [heading, *run_sections(result)]


def _sweep(result: Mapping[str, Any]) -> list[str]:
    runs, met = result["runs"], result["highest_rate"]
    ordered = sorted(runs, key=lambda run: float(run["rate"]))
    answer = (
        f"Highest rate that meets the bounds: {met:.2f} requests/s." if met else "No rate meets the bounds."
    )
    rows = [
        (
            f"{run['rate']:.2f}",
            "met" if run["is_met"] else "missed: " + ", ".join(run["reasons"]),
            f"{100 * run['share_within_bounds']:.1f}",
            *(_number(run["result"].get(key)) for key in ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms")),
            _number(run["result"]["output_throughput"]),
        )
        for run in ordered
    ]
    titles = (
        "requests/s",
        "bounds",
        "within (%)",
        "mean TTFT (ms)",
        "P99 TTFT (ms)",
        "mean TPOT (ms)",
        "tokens/s",
    )
    return [
        f"<p>{answer}</p>",
        _plots(latency_against_rate(runs)),
        _table(titles, rows),
        _settings(result),
        *(_folded(f"{run['rate']:.2f} requests/s", run["result"]) for run in ordered),
    ]


def _comparison(result: Mapping[str, Any]) -> list[str]:
    pairs, found = result["pairs"], result["differences"]
    rows = []
    for key, one in found.items():
        means = []
        for side in "ab":
            values = [pair[side][key] for pair in pairs if pair[side].get(key)]
            means.append(_number(sum(values) / len(values)) if values else "n/a")
        size = f"{one['percent']:+.1f} ± {one['error_percent']:.1f}"
        rows.append((TITLES.get(key, key), *means, size, str(one["num_pairs"])))
    return [
        f"<p>{text_of(result['answer'] or 'Nothing could be compared.')}</p>",
        _plots([differences_plot(found)]),
        _table(("", "A", "B", "B is faster by (%)", "pairs"), rows),
        _settings(result),
        *(
            _folded(f"Pair {number + 1}, {side.upper()}", pair[side])
            for number, pair in enumerate(pairs)
            for side in "ab"
        ),
    ]


def _folded(title: str, result: Mapping[str, Any]) -> str:
    return f"<details><summary>{text_of(title)}</summary>{''.join(run_sections(result))}</details>"


def run_sections(result: Mapping[str, Any]) -> list[str]:
    """What one run found."""
    own = result.get("qanat") or {}
    requests = requests_of(result)
    facts = {**FACTS, **TOTALS, **SPECULATION}
    listed = [(name, _number(result[key])) for key, name in facts.items() if result.get(key) is not None]
    parts = [*_verdict(own), _side_by_side(_table(("Run", ""), listed), _latencies(result, own))]
    if requests:
        parts += ["<h3>Distributions</h3>", _plots(distributions(requests))]
        parts += ["<h3>Timeline</h3>", _plots(timeline(requests))]
    else:
        parts.append(
            '<p class="soft">The file has no times of single requests: --save-detailed keeps them.</p>'
        )
    parts += _server(own)
    failures = own.get("failures") or {}
    if failures:
        parts.append(_table(("Failures", ""), [(kind, str(count)) for kind, count in failures.items()]))
    return [
        *parts,
        *(f'<p class="soft">{text_of(note)}</p>' for note in own.get("notes") or ()),
        _settings(own),
    ]


def _verdict(own: Mapping[str, Any]) -> Iterable[str]:
    word = own.get("verdict")
    if word is None:
        return
    kind = word if word in ("valid", "doubtful", "invalid") else "soft"
    yield f'<p>Verdict: <span class="verdict {kind}">{text_of(word)}</span></p>'
    for finding in own.get("findings") or ():
        yield f"<p>{text_of(finding['grade'])}: {text_of(finding['text'])} [{text_of(finding['code'])}]</p>"


def _latencies(result: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Mean, median and percentiles with their intervals, from both moments."""
    latency_from = own.get("latency_from", SENT)
    other = SENT if latency_from == INTENDED else INTENDED
    rows = []
    for moment, values in ((latency_from, result), (other, own.get(f"from_{other}") or {})):
        intervals = own.get("confidence_95") or {} if moment == latency_from else {}
        for name in METRICS:
            if moment == other and name in ("tpot", "itl"):
                continue  # no moment of sending is in them
            for key in (key for key in values if key.endswith(f"_{name}_ms") and not key.startswith("std")):
                if values[key] is None:
                    continue
                title = f"{key.removesuffix(f'_{name}_ms')} {name.upper()}"
                ends = intervals.get(key)
                shown = f"{ends[0]:.2f} to {ends[1]:.2f}" if ends else ""
                counted_from = "" if name in ("tpot", "itl") else NAMES[moment]
                rows.append((title, counted_from, f"{values[key]:.2f}", shown))
    return _table(("Latency", "counted from", "ms", "95 % interval"), rows)


def _server(own: Mapping[str, Any]) -> list[str]:
    server, cached = own.get("server") or {}, (own.get("prompts") or {}).get("cached_share")
    rows = []
    for key, value in server.items():
        if isinstance(value, Mapping):
            shown = (_number(value.get(name)) for name in ("mean_ms", "median_ms", "p99_ms"))
            rows.append((key.replace("_", " ") + " (ms)", *shown))
    counted = [(name, _number(server[key])) for key, name in COUNTERS.items() if key in server]
    if cached is not None:
        counted.append(("prompt tokens out of the prefix cache (%)", _number(100 * cached)))
    plots = server_timeline(own.get("timeline") or {})
    if not (rows or counted or plots):
        return []
    return [
        "<h3>The server's own figures</h3>",
        *([_table(("Time in the server", "mean", "median", "P99"), rows)] if rows else []),
        *([_table(("Counted", ""), counted)] if counted else []),
        *([_plots(plots)] if plots else []),
    ]


def _settings(own: Mapping[str, Any]) -> str:
    settings = own.get("settings") or {}
    if not settings:
        return ""
    rows = [(flag_of(name), str(value)) for name, value in settings.items()]
    return f"<details><summary>Settings</summary>{_table(('Flag', 'value'), rows)}</details>"


def _plots(plots: Iterable[str]) -> str:
    figures = "".join(f"<figure><figcaption>{_title(plot)}</figcaption>{plot}</figure>" for plot in plots)
    return f'<div class="plots">{figures}</div>'


def _title(plot: str) -> str:
    return plot.partition("<title>")[2].partition("</title>")[0]


def _side_by_side(*tables: str) -> str:
    return f'<div class="tables">{"".join(tables)}</div>'


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{text_of(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{text_of(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _number(value: object) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)
