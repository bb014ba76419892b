"""How far the start of a server is, read from its log line by line."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import cast, get_args

from qanat.deploy.diagnose.lines import clean
from qanat.deploy.knowledge.kinds.logs import LogStage, StartStage
from qanat.deploy.knowledge.load import load_knowledge

ORDER: tuple[StartStage, ...] = get_args(StartStage)
"""The stages as they follow each other."""

WORDS: dict[StartStage, str] = {
    "start": "the server has begun to start",
    "connect": "ranks connect with each other",
    "load": "weights are loaded",
    "profile": "the model is compiled and its memory measured",
    "cache": "the KV cache has its size",
    "capture": "graphs are captured",
    "engine": "the engine is ready",
    "listen": "the HTTP server starts",
    "ready": "ready for requests",
    "serve": "requests are served",
}
"""Each stage in words."""


@dataclass(frozen=True)
class Stage:
    """A stage that was reached, or progress inside it.

    Attributes:
        name: which stage.
        detail: how far inside it ("11 of 94 files"); empty if the line does not say.
        is_new_start: the log begins anew: the server was started again.
    """

    name: StartStage
    detail: str = ""
    is_new_start: bool = False

    @property
    def words(self) -> str:
        """The stage for people."""
        return f"{WORDS[self.name]}{f' ({self.detail})' if self.detail else ''}"

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered from here on."""
        return ORDER.index(self.name) >= ORDER.index("ready")


@functools.cache
def stage_patterns() -> tuple[tuple[LogStage, re.Pattern[str]], ...]:
    """Every line that shows a stage, with its pattern ready to use."""
    entries = load_knowledge().tables["stages"].entries.values()
    return tuple((cast(LogStage, entry), re.compile(entry.pattern)) for entry in entries)


@functools.cache
def stage_literals() -> frozenset[str]:
    """Texts of which a line needs one to show a stage."""
    return frozenset(literal for entry, _ in stage_patterns() for literal in entry.literals)


def match_stage(text: str) -> tuple[LogStage, re.Match[str]] | None:
    """The stage that one line shows by itself; None for most lines."""
    for entry, pattern in stage_patterns():
        if any(literal in text for literal in entry.literals):
            match = pattern.search(text)
            if match is not None:
                return entry, match
    return None


class StageReader:
    """Follows one server's log; processes of several ranks may write to it.

    Progress goes forward only: a rank that lags behind the others changes nothing. `current` is the last stage that
    was reached, None before the first.
    """

    def __init__(self) -> None:
        self.current: Stage | None = None

    def feed(self, line: str) -> Stage | None:
        """Takes a line (without or with its end, progress bars with carriage returns included).

        Returns:
            The stage, if the line shows a new one or more progress inside the current one; else None.
        """
        news = None
        for frame in clean(line).split("\r"):
            news = self._frame(frame) or news
        return news

    def _frame(self, text: str) -> Stage | None:
        found = match_stage(text)
        if found is None:
            return None
        entry, match = found
        detail = entry.detail.format_map(match.groupdict()) if entry.detail else ""
        before = self.current
        rank = ORDER.index(entry.stage)
        is_new = before is None or (entry.begins_anew and ORDER.index(before.name) >= ORDER.index("load"))
        if not is_new and before is not None:
            reached = ORDER.index(before.name)
            if rank < reached or (rank == reached and detail in ("", before.detail)):
                return None
        self.current = Stage(entry.stage, detail, is_new_start=is_new)
        return self.current
