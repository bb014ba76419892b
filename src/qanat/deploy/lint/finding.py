"""A finding of the linter: where, which rule, what happens, what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.deploy.knowledge.kinds.rules import Consequence, Severity
from qanat.deploy.sources.values import Place


@dataclass(frozen=True)
class Edit:
    """A change that keeps the meaning the author wanted: the text at `place` becomes `replacement`."""

    place: Place
    replacement: str


@dataclass(frozen=True)
class Fix:
    """What to do, in words; `edits` where it is safe to do without asking (all of them or none)."""

    text: str
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One place in a file that a rule objects to.

    `since` and `until` are the vllm-ascend versions for which it holds (None: no bound known); `version` is the one
    that was assumed here, and `source` says where the rule comes from.
    """

    rule_id: str
    severity: Severity
    consequence: Consequence
    place: Place
    message: str
    fix: Fix
    source: str
    since: str | None = None
    until: str | None = None
    version: str | None = None

    @property
    def sort_key(self) -> tuple[str, int, int, str, str]:
        """Order of a report: by file, line, column, then rule."""
        return (self.place.path, self.place.line, self.place.column, self.rule_id, self.message)
