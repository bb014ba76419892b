"""What `qanat top` shows of one server, as lines of plain text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from qanat.cli.terminal import decision_lines

if TYPE_CHECKING:
    from qanat.bench.live.watch import View

NOT_THERE = "-"
SINCE_START = "  (since the start)"
TITLE_WIDTH = 14
LATENCY_TITLES = {"ttft": "TTFT", "itl": "ITL", "e2e": "end to end", "queue": "queue"}


def view_lines(view: View) -> Iterator[str]:
    """Everything that is known of a server; the decisions of its plan stand last."""
    yield from figure_lines(view)
    yield from plan_lines(view)


def plan_lines(view: View) -> Iterator[str]:
    """The decisions of its plan, if it tells any."""
    if view.decisions:
        yield f"plan, {len(view.decisions)} decisions"
        yield from (f"  {line}" for line in decision_lines(view.decisions))


def figure_lines(view: View) -> Iterator[str]:
    """The server's name and figures, or why there are none."""
    figures = view.figures
    if figures is None:
        yield f"{view.server}  cannot be read: {view.failure}"
        return
    yield "  ".join([view.server, ", ".join(figures["models"])]).rstrip()
    yield from _request_lines(figures)
    yield _row(
        "tokens/s",
        f"prompt {_number(figures['prompt_tokens_per_s'])}, generation {_number(figures['generation_tokens_per_s'])}"
        + (f"  (of {figures['duration_s']:.1f} s)" if figures["duration_s"] else "  (with the next reading)"),
    )
    for key, title in LATENCY_TITLES.items():
        yield _row(title, _spread(figures["latency_ms"][key], "ms"))
    steps = figures["steps_per_s"]
    yield _row(
        "batch",
        _spread(figures["step_tokens"], "tokens a step")
        + ("" if steps is None else f", {_number(steps)} steps/s"),
    )
    yield _row("KV cache", f"{_share(figures['kv_cache_usage'])} in use")
    yield _row("prefix cache", _prefix_cache(figures["prefix_cache"]))
    yield _row("speculation", _speculation(figures["speculation"]))


def _request_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    parts = [f"{_count(figures['running'])} running", f"{_count(figures['waiting'])} waiting"]
    parts.append(f"{_number(figures['requests_per_s'])} ended/s")
    if figures["preemptions"]:
        parts.append(f"{_count(figures['preemptions'])} preemptions since the start")
    yield _row("requests", ", ".join(parts))
    if len(figures["replicas"]) > 1:
        for one in figures["replicas"]:
            yield _row(
                f"  replica {one['engine']}",
                f"{_count(one.get('running'))} running, {_count(one.get('waiting'))} waiting, "
                f"KV cache {_share(one.get('kv_cache_usage'))}",
            )


def _spread(value: Mapping[str, Any] | None, unit: str) -> str:
    """The mean is exact; of what lies in a histogram's first bucket only the bound is known."""
    if value is None:
        return NOT_THERE
    lowest = value["lowest_bound"]
    shown = [f"mean {_number(value['mean'])}"]
    for key in ("p50", "p90", "p99"):
        one = value[key]
        is_bound = one is not None and lowest is not None and one <= lowest
        shown.append(f"{key} <= {lowest:g}" if is_bound else f"{key} {_number(one)}")
    return f"{', '.join(shown)} {unit}{_since(value)}"


def _prefix_cache(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return NOT_THERE
    return (
        f"{_share(value['hit_rate'])} of {_count(value['query_tokens'])} prompt tokens found{_since(value)}"
    )


def _speculation(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return NOT_THERE
    return (
        f"{_share(value['acceptance_rate'])} of {_count(value['draft_tokens'])} drafts accepted, mean k "
        f"{value['mean_k']:.2f}, {value['tokens_per_verification']:.2f} tokens a verification{_since(value)}"
    )


def _since(value: Mapping[str, Any]) -> str:
    return SINCE_START if value["is_since_start"] else ""


def _row(title: str, text: str) -> str:
    return f"{title:<{TITLE_WIDTH}}{text}"


def _count(value: float | None) -> str:
    return NOT_THERE if value is None else f"{value:,.0f}"


def _share(value: float | None) -> str:
    if value is None:
        return NOT_THERE
    return f"{value:.3%}" if 0 < value < 0.01 else f"{value:.1%}"


def _number(value: float | None) -> str:
    """With the digits that mean something: 0.42, 7.3, 1,234."""
    if value is None:
        return NOT_THERE
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
