"""Folds the lines of one fault into one event: a traceback is one thing, whichever process wrote in between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from qanat.deploy.diagnose.lines import Line
from qanat.deploy.knowledge.kinds.logs import LogSignature

MAX_EVENT_LINES = 120
"""Longer tracebacks keep their first and last lines."""
MAX_OPEN_EVENTS = 128
MAX_KEPT_CHARS = 2000
"""So much of each line of a fault is kept."""
_PATIENCE = 200
"""An event is over when so many lines of other processes went by."""

_EXCEPTION = re.compile(
    r"\s*(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Failure|Version)(?::\s|$)"
)
_CRASH = re.compile(
    r"E[A-Z0-9]\d{4}: |(?:\[PID: \d+\] [\d.:-]+ )?[\w/]+\(E[A-Z0-9]\d{4}\): "
    r"|Fatal Python error|terminate called|thread '.*' panicked at"
    r"|.*(?:\(core dumped\)|(?i:error code)(?: is)?\s?[:=]?\s?\d{6}\b)"
)
"""Lines without a level that tell of an end all the same: of CANN, of Python's own, of other languages, of shells."""
_TRACEBACK = "Traceback (most recent call last)"
_CHAIN = ("During handling of the above", "The above exception was the direct cause")
_FAULTS = ("ERROR", "CRITICAL")


@dataclass
class Match:
    """A signature that a line matched, and the values of its groups."""

    signature: LogSignature
    line: Line
    values: dict[str, str]


@dataclass
class Event:
    """Lines of one process that belong together.

    Attributes:
        lines: first to last; of a long one the middle is left out.
        exceptions: those of its lines that name an exception.
        matches: signatures of all its lines.
        is_fault: a line was written as an error, or it is a traceback.
        seconds: when it began; None if no line before it has a time.
        last_number: of its last line.
        in_traceback: its last lines are a traceback whose exception is still to come.
        has_ended: its last traceback has its exception; another one belongs to it only if Python says so.
    """

    lines: list[Line]
    seconds: float | None = None
    exceptions: list[Line] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)
    is_fault: bool = False
    last_number: int = 0
    in_traceback: bool = False
    has_ended: bool = False

    @property
    def first(self) -> Line:
        """Its first line."""
        return self.lines[0]

    def add(self, line: Line, matches: list[Match]) -> None:
        """Takes one more line."""
        if len(self.lines) >= MAX_EVENT_LINES:
            del self.lines[MAX_EVENT_LINES // 2]
        line = line._replace(text=line.text[:MAX_KEPT_CHARS], whole="")
        self.lines.append(line)
        self.last_number = line.number
        self.matches += matches
        if _TRACEBACK in line.text:
            self.in_traceback = True
        elif _is_exception(line.text):
            self.exceptions.append(line)
            self.in_traceback, self.has_ended = False, True
        elif line.text.startswith(_CHAIN):
            self.has_ended = False


class Folder:
    """Puts lines together; several processes may write at the same time."""

    def __init__(self) -> None:
        self._num_fed = 0
        self._open: dict[tuple[str, str], Event] = {}

    def feed(self, line: Line, matches: list[Match], seconds: float | None) -> Iterator[Event]:
        """Takes a line; gives the events that are over. Lines that belong to no fault are events of their own.

        Args:
            line: the next one of its log.
            matches: signatures it matches.
            seconds: its time, or that of the last line with one.
        """
        key = ("plog" if " pid " in line.process else line.process, line.pid)
        event = self._open.get(key)
        if event is not None and _continues(event, line):
            event.add(line, matches)
            return
        if event is not None:
            yield self._open.pop(key)
        fresh = Event([], seconds, is_fault=_begins(line))
        fresh.add(line, matches)
        if fresh.is_fault:
            self._open[key] = fresh
        elif matches:
            yield fresh
        yield from self._overdue(line.number)

    def end(self) -> Iterator[Event]:
        """Gives what is still open."""
        yield from self._open.values()
        self._open.clear()

    def _overdue(self, number: int) -> Iterator[Event]:
        self._num_fed += 1
        if self._num_fed % 32 == 0 or len(self._open) > MAX_OPEN_EVENTS:
            late = [key for key, event in self._open.items() if number - event.last_number > _PATIENCE]
            late += list(self._open)[: max(0, len(self._open) - MAX_OPEN_EVENTS)]
            for key in dict.fromkeys(late):
                yield self._open.pop(key)


def _begins(line: Line) -> bool:
    if line.level in _FAULTS or _TRACEBACK in line.text:
        return True
    return not line.level and (_is_exception(line.text) or _CRASH.match(line.text) is not None)


def _continues(event: Event, line: Line) -> bool:
    if line.number - event.last_number > _PATIENCE:
        return False
    if line.level:
        # CANN writes a line for every function an error went through: one burst is one fault.
        is_same = line.place == event.lines[-1].place if line.place else " pid " in line.process
        return line.level in _FAULTS and is_same and not _is_new_message(event, line)
    text = line.text
    if _TRACEBACK in text:
        # Python says so where a second traceback belongs to the first.
        return not event.has_ended
    if not text.strip() or text[0] in " \t^" or text.startswith(_CHAIN):
        return True
    return event.in_traceback or (_is_exception(text) and line.number == event.last_number + 1)


def _is_new_message(event: Event, line: Line) -> bool:
    """Errors of one place that were written at different times are different errors."""
    if (line.month, line.day) != (event.first.month, event.first.day):
        return True
    return abs(line.second - event.first.second) > 2


def _is_exception(text: str) -> bool:
    return _EXCEPTION.match(text) is not None and not text.startswith(" " * 8)
