"""What goes wrong with running services, and what users hit."""

from __future__ import annotations

from typing import Literal

from qanat.deploy.knowledge.entry import Entry, Lifetime


class ServiceSymptom(Entry, frozen=True, kw_only=True):
    """What a running service does wrong when it is asked.

    `level` is the outcome of the check that sees it, `meaning` what is usually behind it, `advice` what to do.
    """

    level: Literal["warn", "fail"]
    meaning: str
    advice: str


Catch = Literal["plan", "lint", "preflight", "verify", "diagnose", "nothing"]
"""Which action of `qanat deploy` tells of a fault."""


class Issue(Lifetime, frozen=True, kw_only=True):
    """What users hit: `name` is the thread ("owner/repo#number").

    `caught_by` are the actions that tell of it, through `rules` and `signatures` where those are named; `since` and
    `until` are the releases it was seen in.
    """

    topic: str
    symptom: str
    cause: str = ""
    remedy: str = ""
    state: Literal["open", "closed", "unknown"] = "unknown"
    caught_by: tuple[Catch, ...]
    rules: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()

    @property
    def link(self) -> str:
        """Address of the thread."""
        repository, number = self.name.split("#")
        return f"https://github.com/{repository}/issues/{number}"
