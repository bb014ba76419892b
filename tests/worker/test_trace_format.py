"""Traces of profiles keep to the trace event format that viewers such as Perfetto read."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.worker.test_profiler import Profiled, read

ROUNDING_US = 1e-3
"""Times are nanoseconds, written as microseconds."""
TOLD_OF = {"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"}


def check(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Every event by its phase; returns those with a duration."""
    spans = []
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"], event
        assert math.isfinite(event.get("ts", 0)) and event.get("ts", 0) >= 0, event
        if event["ph"] == "X":
            assert event["cat"] and event["dur"] >= 0 and math.isfinite(event["dur"]), event
            assert all(isinstance(event[field], int | str) for field in ("pid", "tid")), event
            spans.append(event)
        elif event["ph"] == "M":
            assert event["name"] in TOLD_OF and event["args"], event
        else:
            assert event["ph"] in {"i", "s", "f"}, event
    return spans


def check_nesting(spans: list[dict[str, Any]]) -> None:
    """On one thread a span lies within another or beside it: viewers draw anything else wrong."""
    by_thread = defaultdict(list)
    for span in spans:
        by_thread[span["pid"], span["tid"]].append(span)
    for mine in by_thread.values():
        open_ends: list[float] = []
        for span in sorted(mine, key=lambda one: (one["ts"], -one["dur"])):
            while open_ends and open_ends[-1] <= span["ts"] + ROUNDING_US:
                open_ends.pop()
            end = span["ts"] + span["dur"]
            assert not open_ends or end <= open_ends[-1] + ROUNDING_US, span
            open_ends.append(end)


@pytest.mark.parametrize("kind", ["ops", "torch"])
def test_a_trace_keeps_to_the_format(tmp_path: Path, kind: str) -> None:
    profiled = Profiled(tmp_path, kinds=(kind,))
    profiled.profiler.start()
    profiled.steps(2)
    (path,) = profiled.report().files
    spans = check(read(path))
    assert spans
    if kind == "ops":
        check_nesting(spans)
