"""What a check finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec


class Status(str, Enum):
    """How a check ended; `unknown` is what could not be looked at, and is no failure."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One finding.

    Attributes:
        check: an entry of the knowledge base's checks of hosts.
        status: how it ended.
        seen: what was seen, in one sentence without a full stop.
        why: what happens if it is left; empty if all is well.
        fix: what to do; empty if all is well.
        source: where that is known from; empty if all is well.
    """

    check: str
    status: Status
    seen: str
    why: str = ""
    fix: str = ""
    source: str = ""


def has_failed(results: Iterable[Result]) -> bool:
    """True if anything asks for a change before the start."""
    return any(result.status is Status.FAIL for result in results)


def count(results: Sequence[Result], status: Status) -> int:
    """Results with this status."""
    return sum(result.status is status for result in results)
