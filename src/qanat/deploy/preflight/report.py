"""Results of checks as text and as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from qanat.deploy.preflight.known import checks
from qanat.deploy.preflight.result import Result, Status, count, has_failed

FORMAT_VERSION = 1
MARKS = {Status.OK: "ok     ", Status.WARN: "warn   ", Status.FAIL: "FAIL   ", Status.UNKNOWN: "unknown"}
NO_CARDS = "No NPU was found here: what needs one was not checked."


def text_report(results: Sequence[Result], what: str) -> str:
    """The report for a terminal.

    Args:
        results: of all checks.
        what: the host and what it was checked for, as a heading.
    """
    lines = [what, ""]
    for result, following in itertools.zip_longest(results, results[1:]):
        lines += _lines(result, following)
    lines += ["", *summary(results)]
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> Iterator[str]:
    """What the report ends with."""
    words = (
        ("failed", Status.FAIL),
        ("warnings", Status.WARN),
        ("unknown", Status.UNKNOWN),
        ("ok", Status.OK),
    )
    yield ", ".join(f"{count(results, status)} {word}" for word, status in words)
    if any(each.check == "npus-found" and each.status is Status.UNKNOWN for each in results):
        yield NO_CARDS
    if has_failed(results):
        yield "Not ready: what failed has to be changed before the start."
    elif count(results, Status.WARN) or count(results, Status.UNKNOWN):
        yield "Nothing failed."
    else:
        yield "Ready."


def json_report(results: Sequence[Result], node: str, host: str) -> dict[str, Any]:
    """The report for programs.

    Args:
        results: of all checks.
        node: of the plan; empty without one.
        host: its name.
    """
    return {
        "version": FORMAT_VERSION,
        "host": host,
        "node": node,
        "is_ready": not has_failed(results),
        "counts": {status.value: count(results, status) for status in Status},
        "results": msgspec.to_builtins(results),
    }


def _lines(result: Result, following: Result | None) -> Iterator[str]:
    """Lines of a result; reason and remedy that the next one has too are left to it."""
    yield f"{MARKS[result.status]}  {checks()[result.check].title}: {result.seen}  [{result.check}]"
    if following is not None and (result.check, result.why, result.fix) == (
        following.check,
        following.why,
        following.fix,
    ):
        return
    if result.why:
        yield f"         why: {result.why}"
    if result.fix:
        yield f"         do: {result.fix}"
    if result.source:
        yield f"         source: {result.source}"
