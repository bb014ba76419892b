"""Rules of the linter, and how bad a finding is."""

from __future__ import annotations

from enum import Enum

from qanat.deploy.knowledge.entry import Entry


class Severity(str, Enum):
    """How bad a finding is: `info` asks for nothing, and leaves the exit code at 0."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Consequence(str, Enum):
    """What happens if a finding is left as it is."""

    START_FAILS = "start_fails"
    IGNORED = "ignored"
    SLOWER = "slower"
    WRONG = "wrong"
    RISK = "risk"


class Rule(Entry, frozen=True, kw_only=True):
    """A rule of the linter: `name` is its id.

    `since` and `until` are vllm-ascend versions, both included; `when`, `effect` and `fix` are one sentence each.
    """

    title: str
    severity: Severity
    consequence: Consequence
    when: str
    effect: str
    fix: str
    since: str | None = None
    until: str | None = None
