"""What was found in logs, counted: one problem however many ranks and lines tell of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from qanat.deploy.diagnose.events import Event, Match
from qanat.deploy.diagnose.lines import Line
from qanat.deploy.knowledge.kinds.logs import LogSignature
from qanat.deploy.knowledge.kinds.rules import Severity

MAX_PROCESSES = 512
MAX_SHOWN_LINES = 12
"""Of a traceback that nobody has described, so many of its last lines are kept."""

_LAST_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True)
class Place:
    """Where a line stands: file, line number, seconds since the year began (None without a time)."""

    file: str
    line: int
    seconds: float | None
    file_index: int

    @property
    def sort_key(self) -> tuple[float, int, int]:
        """Order in time; lines without a time come behind, in the order of files."""
        return (self.seconds if self.seconds is not None else float("inf"), self.file_index, self.line)


@dataclass
class Problem:
    """Something that logs tell of.

    Attributes:
        signature: what is known of it; None for a fault nobody has described.
        headline: the line that tells it, without its prefix.
        detail: lines around it: the end of its traceback.
        place: where it was told first.
        process: which process told it first.
        processes: all that told it.
        files: all files it stands in.
        num_seen: how often it was told.
        values: what the line says, by the names of the signature's groups.
        last_seconds: when it was told last; None without a time.
        is_hang: a log ends with it, so what is harmless elsewhere is a fault.
        is_late: something else failed before it, and its signature says that it can be a consequence.
    """

    signature: LogSignature | None
    headline: str
    detail: tuple[str, ...]
    place: Place
    process: str
    processes: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    num_seen: int = 0
    values: dict[str, str] = field(default_factory=dict)
    last_seconds: float | None = None
    is_hang: bool = False
    is_late: bool = False

    def rename(self, names: Mapping[str, str]) -> None:
        """Gives processes the names under which other lines know them."""
        self.process = names.get(self.process, self.process)
        self.processes = {names.get(one, one) for one in self.processes}

    @property
    def severity(self) -> Severity:
        """How bad it is; what nobody has described is an error."""
        return self.signature.severity if self.signature and not self.is_hang else Severity.ERROR

    @property
    def is_consequence(self) -> bool:
        """Whether something else failed before."""
        return self.is_late or (self.signature is not None and self.signature.is_consequence)

    def seen_again(self, other: Problem) -> None:
        """Counts the same problem, told elsewhere."""
        self.num_seen += other.num_seen
        self.last_seconds = max(
            (one for one in (self.last_seconds, other.last_seconds) if one is not None), default=None
        )
        self.files |= other.files
        if len(self.processes) < MAX_PROCESSES:
            self.processes |= other.processes
        if other.place.sort_key < self.place.sort_key:
            self.headline, self.detail = other.headline, other.detail
            self.place, self.process = other.place, other.process
            self.values = self.values | other.values
        else:
            self.values = other.values | self.values


def problems_of(event: Event, place: Place) -> list[tuple[str, Problem]]:
    """The problems an event tells of, each with the key under which equal ones are counted.

    A traceback that is only introduced as a consequence ("EngineCore failed to start"), with an exception below that
    is none, tells of a fault that nobody has described.
    """
    grave = [one for one in event.matches if one.signature.severity is not Severity.INFO]
    causes = [one for one in grave if not one.signature.is_consequence]
    chosen = causes or grave
    found = [_known(one, event, place) for one in _once(chosen)]
    found += [_known(one, event, place) for one in _once(event.matches) if one not in grave]
    if event.is_fault and not causes:
        explained = max((one.line.number for one in grave), default=0)
        known = {one.line.number for one in event.matches}
        strange = [line for line in event.exceptions if line.number > explained and line.number not in known]
        if strange or not event.matches:
            found.insert(0, _unknown(event, strange[0] if strange else event.first, place))
    return found


def _once(matches: list[Match]) -> list[Match]:
    return list({one.signature.name: one for one in reversed(matches)}.values())[::-1]


def _known(match: Match, event: Event, place: Place) -> tuple[str, Problem]:
    at = Place(place.file, match.line.number, place.seconds, place.file_index)
    problem = _problem(match.line, event, at)
    problem.signature = match.signature
    problem.values = dict(match.values)
    return match.signature.name, problem


def _unknown(event: Event, line: Line, place: Place) -> tuple[str, Problem]:
    at = Place(place.file, line.number, place.seconds, place.file_index)
    problem = _problem(line, event, at)
    until = event.lines.index(line) + 1
    problem.detail = tuple(one.text for one in event.lines[max(0, until - MAX_SHOWN_LINES) : until])
    # Ranks word one fault alike except for numbers and addresses.
    return "?" + _LAST_NUMBERS.sub("#", line.text.strip())[:300], problem


def _problem(line: Line, event: Event, place: Place) -> Problem:
    process = event.first.process or (f"rank {line.rank}" if line.rank is not None else "")
    return Problem(
        signature=None,
        headline=line.text.strip(),
        detail=(),
        place=place,
        process=process,
        processes={process} if process else set(),
        files={place.file},
        num_seen=1,
        last_seconds=place.seconds,
    )
