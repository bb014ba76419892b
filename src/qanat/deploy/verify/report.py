"""Outcomes as a table for people and as JSON for programs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qanat.core.printable import printable
from qanat.deploy.verify.run import Outcome

if TYPE_CHECKING:
    from qanat.deploy.verify.check import Context

NAME_WIDTH = 18
WIDTH = 120
INDENT = " " * 8


def row(outcome: Outcome) -> list[str]:
    """The lines of an outcome: what was seen, and below it what that means and what to do."""
    seconds = f"{outcome.seconds:7.2f} s" if outcome.status != "skipped" else " " * 9
    lines = [f"{outcome.status:8}{outcome.check:{NAME_WIDTH}}{seconds}  {printable(outcome.seen, kept='')}"]
    if outcome.symptom:
        lines += _wrapped("means: ", outcome.meaning) + _wrapped("to do: ", outcome.advice)
    return lines


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        head + text,
        WIDTH,
        initial_indent=INDENT,
        subsequent_indent=INDENT + " " * len(head),
        break_on_hyphens=False,
    )


def summary(outcomes: Sequence[Outcome]) -> str:
    """Counts, worst first."""
    counts = Counter(outcome.status for outcome in outcomes)
    parts = [f"{counts[status]} {status}" for status in ("fail", "warn", "ok", "skipped") if counts[status]]
    return f"{len(outcomes)} checks: {', '.join(parts)}"


def has_failed(outcomes: Sequence[Outcome]) -> bool:
    """Whether any check failed."""
    return any(outcome.status == "fail" for outcome in outcomes)


def json_report(outcomes: Sequence[Outcome], context: Context) -> dict[str, Any]:
    """Everything, for --json."""
    return {
        "url": str(context.service.exchange.address),
        "model": context.model or None,
        "max_model_len": context.max_model_len,
        "is_ok": not has_failed(outcomes),
        "checks": [
            {
                "check": outcome.check,
                "title": outcome.title,
                "status": outcome.status,
                "seconds": round(outcome.seconds, 3),
                "seen": outcome.seen,
                "symptom": outcome.symptom or None,
                "meaning": outcome.meaning or None,
                "advice": outcome.advice or None,
                "source": outcome.source or None,
            }
            for outcome in outcomes
        ],
    }
