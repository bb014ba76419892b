"""Reads logs of one server, of all its ranks and nodes, and says what failed first."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from qanat.deploy.diagnose.clock import Clock
from qanat.deploy.diagnose.events import Event, Folder, Match
from qanat.deploy.diagnose.facts import Facts
from qanat.deploy.diagnose.lines import Line, read_line
from qanat.deploy.diagnose.log_source import LogSource
from qanat.deploy.diagnose.problems import Place, Problem, problems_of
from qanat.deploy.diagnose.scan import RawLine, ScanStatistics, scan
from qanat.deploy.diagnose.settings import ARGUMENTS, Settings, SettingsFinding, findings_of
from qanat.deploy.diagnose.stages import ORDER, StageReader, match_stage, stage_literals
from qanat.deploy.knowledge.kinds.logs import LogQuotation, LogSignature, StartStage
from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.knowledge.versions import must_parse, parse_image, parse_version

WAITING = "L089"
"""The signature of an engine that waits for a worker; it tells so once a minute."""
STOPPED = "L091"
"""The signature of a server that was stopped by hand."""
MIN_WAITS, MIN_WAITS_BEFORE_READY = 3, 10
"""So many waits in a row are a hang; before the server is ready, loading may take that long."""
MAX_SILENCE_S = 90
"""Nothing else was written for so long behind it: the log ends with waiting."""
MAX_PIDS = MAX_RANKS = 4096
MAX_UNKNOWN = 200
"""So many different faults that nobody has described are kept; the first are what matters."""
_ASCEND_VERSION = re.compile(r"(?i)vllm[- ]ascend(?: version)?\s*[:=]\s*v?(?P<vllm_ascend>\d+\.\d+[\w.]*)")


@dataclass
class StageMark:
    """When a stage was reached first, and what was last told of its progress."""

    stage: StartStage
    seconds: float | None
    detail: str


@dataclass
class LogDiagnosis:
    """What logs tell.

    Attributes:
        sources: names and statistics of the logs, in the order given.
        problems: faults and what is worth knowing, in order of time.
        stages: of the last start, in order.
        facts: figures of the last start.
        servers: settings of the last start in each log that states some.
        findings: what the linter says of them.
        image: what the user or the container says of the version; None if nothing.
        version: of vllm-ascend; None if unknown. `version_from` says how it is known.
        num_starts: how often the server was started in these logs.
        first_time, last_time: seconds; None without times.
        last_start: where the last start begins; None if no log shows one.
        ranks: that told of themselves while they connected.
        is_log: some line has a form that servers, CANN or containers write.
        may_grow: the logs may still be written.
    """

    sources: list[tuple[str, ScanStatistics]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    stages: list[StageMark] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    servers: list[Settings] = field(default_factory=list)
    findings: list[SettingsFinding] = field(default_factory=list)
    image: str | None = None
    version: str | None = None
    version_from: str = ""
    num_starts: int = 0
    first_time: float | None = None
    last_time: float | None = None
    last_start: Place | None = None
    ranks: set[int] = field(default_factory=set)
    is_log: bool = False
    may_grow: bool = False

    def of(self, *severities: Severity, consequences: bool = False) -> list[Problem]:
        """Problems of these severities, without consequences or only those."""
        return [
            one for one in self.problems if one.severity in severities and one.is_consequence is consequences
        ]

    def is_of_earlier_start(self, problem: Problem) -> bool:
        """Whether the server was started again behind a problem."""
        start = self.last_start
        return self.num_starts > 1 and start is not None and problem.place.sort_key < start.sort_key

    @property
    def settings(self) -> Settings:
        """The settings of the first log that states some."""
        return next((one for one in self.servers if one.arguments_at is not None), Settings())

    @property
    def has_faults(self) -> bool:
        """Whether anything was found that asks for a change."""
        if any(problem.severity is not Severity.INFO for problem in self.problems):
            return True
        if self.ends_before_ready and not self.may_grow:
            return True
        return any(one.is_fault for one in self.findings)

    @property
    def missing_ranks(self) -> list[int]:
        """Ranks that others waited for when the start ended: no line of any log tells of them."""
        world = self.facts.number("world")
        has_connected = any(ORDER.index(mark.stage) > ORDER.index("connect") for mark in self.stages)
        if world is None or has_connected or not self.ranks or world > MAX_RANKS:
            return []
        return sorted(set(range(int(world))) - self.ranks)

    @property
    def ends_before_ready(self) -> bool:
        """Whether a start is shown that neither got ready nor was stopped by hand.

        Rank 0 is ready for requests at the end, other nodes when their engine is; logs of workers alone do not tell.
        """
        reached = {mark.stage for mark in self.stages}
        furthest = max((ORDER.index(stage) for stage in reached), default=0)
        is_headless = any(one.argument("headless") is True for one in self.servers)
        enough = ORDER.index("profile" if is_headless else "engine")
        is_stopped = any(one.signature and one.signature.name == STOPPED for one in self.problems)
        return "start" in reached and furthest < enough and not is_stopped

    @property
    def is_ready(self) -> bool:
        """Whether the last start went so far that requests were answered."""
        return any(ORDER.index(mark.stage) >= ORDER.index("ready") for mark in self.stages)


@functools.cache
def _signatures() -> dict[str, list[tuple[LogSignature, re.Pattern[str]]]]:
    """Signatures by the texts of which their lines need one."""
    by_literal: dict[str, list[tuple[LogSignature, re.Pattern[str]]]] = {}
    for signature in load_knowledge().signatures:
        pattern = re.compile(signature.pattern)
        for literal in signature.literals:
            by_literal.setdefault(literal, []).append((signature, pattern))
    return by_literal


def diagnose_logs(sources: Sequence[LogSource], image: str | None = None) -> LogDiagnosis:
    """Reads logs, and checks the settings in them.

    Args:
        sources: logs of one server; several are merged by time.
        image: image, tag or version of vllm-ascend; None to go by the log.

    Raises:
        ConfigError: a log cannot be read.
        ImageError: no version can be read from `image`.
    """
    collector = _Collector()
    for source in sources:
        collector.read(source)
    diagnosis = collector.done()
    _settle_version(diagnosis, image)
    diagnosis.may_grow = any(source.may_grow() for source in sources)
    diagnosis.findings = findings_of(diagnosis.servers, image or diagnosis.version)
    return diagnosis


def _settle_version(diagnosis: LogDiagnosis, image: str | None) -> None:
    facts = diagnosis.facts
    diagnosis.image = image
    tag = parse_image(image) if image else None
    stated = parse_version(facts.value("vllm_ascend") or "")
    pair = re.match(r"\d+\.\d+\.\d+", facts.value("vllm") or "")
    if tag is not None:
        diagnosis.version, diagnosis.version_from = str(tag.version), "as given"
    elif stated is not None:
        diagnosis.version, diagnosis.version_from = str(stated), "the log names it"
    elif pair is not None:
        release = load_knowledge().release(must_parse(pair.group()))
        diagnosis.version = release.name if release else pair.group()
        diagnosis.version_from = "taken from vLLM's version, which it pairs with"


class _Collector:
    """Takes lines of one log after the other."""

    def __init__(self) -> None:
        self.diagnosis = LogDiagnosis()
        self.clock = Clock()
        self.problems: dict[str, Problem] = {}
        self.names_of_pids: dict[str, set[str]] = {}

    def read(self, source: LogSource) -> None:
        """Reads one log to its end."""
        statistics = ScanStatistics()
        self.diagnosis.sources.append((source.name, statistics))
        file = _LogFile(self, source.name, len(self.diagnosis.sources) - 1)
        with source.open() as stream:
            for raw in scan(stream, statistics):
                file.take(raw)
        file.end()
        self.diagnosis.is_log = self.diagnosis.is_log or statistics.num_answered > 0
        self.diagnosis.servers.append(file.settings)

    def count(self, found: Iterable[tuple[str, Problem]]) -> None:
        """Counts problems, equal ones together."""
        for key, problem in found:
            before = self.problems.get(key)
            if before is not None:
                before.seen_again(problem)
            elif not key.startswith("?") or len(self.problems) < MAX_UNKNOWN:
                self.problems[key] = problem

    def done(self) -> LogDiagnosis:
        """All that was found."""
        self._raise_hang()
        names = self._names_of_plog()
        for problem in self.problems.values():
            problem.rename(names)
        self.diagnosis.problems = sorted(self.problems.values(), key=lambda one: one.place.sort_key)
        _find_late(self.diagnosis)
        self.diagnosis.stages.sort(key=lambda mark: ORDER.index(mark.stage))
        return self.diagnosis

    def _raise_hang(self) -> None:
        """A wait for a worker is usual while weights load; where the log ends with it, the worker hangs."""
        least = MIN_WAITS if self.diagnosis.is_ready else MIN_WAITS_BEFORE_READY
        wait, end = self.problems.get(WAITING), self.diagnosis.last_time
        if wait is None or wait.last_seconds is None or end is None or wait.num_seen < least:
            return
        wait.is_hang = end - wait.last_seconds <= MAX_SILENCE_S

    def know(self, line: Line) -> None:
        """Notes which process has which id; CANN's logs know ids only."""
        if line.process.startswith("Worker_") and len(self.names_of_pids) < MAX_PIDS:
            self.names_of_pids.setdefault(line.pid, set()).add(line.process)

    def _names_of_plog(self) -> dict[str, str]:
        """Names for processes of CANN's logs, where one process only has the id: nodes may use the same ones."""
        return {
            process: next(iter(self.names_of_pids[pid]))
            for problem in self.problems.values()
            for process in (problem.process, *problem.processes)
            for pid in [process.rpartition(" pid ")[2]]
            if " pid " in process and len(self.names_of_pids.get(pid, ())) == 1
        }


def _find_late(diagnosis: LogDiagnosis) -> None:
    """Marks what followed from an earlier fault of the same start."""
    first: dict[bool, Problem] = {}
    for problem in diagnosis.problems:
        signature = problem.signature
        if signature is None or problem.severity is not Severity.ERROR or problem.is_consequence:
            continue
        cause = first.setdefault(diagnosis.is_of_earlier_start(problem), problem)
        problem.is_late = signature.can_follow and cause is not problem


class _LogFile:
    """One log while it is read."""

    def __init__(self, collector: _Collector, name: str, index: int) -> None:
        self.collector = collector
        self.diagnosis = collector.diagnosis
        self.name = name
        self.index = index
        self.folder = Folder()
        self.stages = StageReader()
        self.settings = Settings()
        self.now: float | None = None
        self.has_own_times = False

    def take(self, raw: RawLine) -> None:
        """Takes a line that the scan found worth reading."""
        for frame in raw.text.split("\r")[-64:]:
            if frame:
                self._line(read_line(frame, raw.number), raw.literals)

    def end(self) -> None:
        """Closes what is open."""
        for event in self.folder.end():
            self._event(event)

    def _line(self, line: Line, literals: tuple[str, ...]) -> None:
        self._time(line)
        self.collector.know(line)
        if line.level or line.process or line.has_time or literals:
            self.diagnosis.is_log = True
        if literals and line.level in ("INFO", "DEBUG") and _is_quotation(line.text):
            return
        if not stage_literals().isdisjoint(literals):
            self._stage(line)
        matches = _matches(line, literals)
        for match in matches:
            self.diagnosis.facts.take(match.values, self.name, line.number)
        self._settings(line)
        for event in self.folder.feed(line, matches, self.now):
            self._event(event)

    def _time(self, line: Line) -> None:
        # A container's own times may be of another zone: they count only until the server's are seen.
        if line.is_outer_time and self.has_own_times:
            return
        seconds = self.collector.clock.seconds(line)
        if seconds is None:
            return
        self.has_own_times = not line.is_outer_time
        self.now = seconds
        first, last = self.diagnosis.first_time, self.diagnosis.last_time
        self.diagnosis.first_time = seconds if first is None else min(first, seconds)
        self.diagnosis.last_time = seconds if last is None else max(last, seconds)

    def _stage(self, line: Line) -> None:
        found = match_stage(line.text)
        if found is None:
            return
        news = self.stages.feed(line.text)
        diagnosis = self.diagnosis
        if news is not None and news.is_new_start and self.settings.arguments_at is not None:
            self.settings = Settings(variables=self.settings.variables)
        if news is not None and news.is_new_start and self._is_another_start():
            # What stands before the first start belongs to it: versions, variables, the platform.
            if diagnosis.num_starts:
                diagnosis.stages.clear()
                diagnosis.ranks.clear()
                diagnosis.facts.begin_anew()
            diagnosis.num_starts += 1
            diagnosis.last_start = Place(self.name, line.number, self.now, self.index)
        values = found[1].groupdict()
        diagnosis.facts.take(values, self.name, line.number)
        if len(diagnosis.ranks) < MAX_RANKS and (values.get("rank") or "").isdigit():
            diagnosis.ranks.add(int(values["rank"]))
        mark = next((one for one in diagnosis.stages if one.stage == found[0].stage), None)
        if mark is None:
            mark = StageMark(found[0].stage, self.now, "")
            diagnosis.stages.append(mark)
        elif self.now is not None and (mark.seconds is None or self.now < mark.seconds):
            mark.seconds = self.now
        if news is not None and news.detail:
            mark.detail = news.detail

    def _is_another_start(self) -> bool:
        """Whether this begins a start, and not another rank's log of the same one."""
        reached = [ORDER.index(mark.stage) for mark in self.diagnosis.stages]
        is_first_file = self.index == 0
        return self.diagnosis.num_starts == 0 or (is_first_file and max(reached, default=0) >= 2)

    def _settings(self, line: Line) -> None:
        if ARGUMENTS in line.text:
            self.settings.take_arguments(line.text, self.name, line.number)
        elif "=" in line.text[:80] and not line.level:
            self.settings.take_variable(line.text, self.name, line.number)
        version = _ASCEND_VERSION.search(line.text) if "scend" in line.text else None
        if version is not None:
            self.diagnosis.facts.take(version.groupdict(), self.name, line.number)

    def _event(self, event: Event) -> None:
        place = Place(self.name, event.first.number, event.seconds, self.index)
        self.collector.count(problems_of(event, place))


@functools.cache
def _quotations() -> re.Pattern[str]:
    entries = load_knowledge().tables["quotations"].entries.values()
    return re.compile("|".join(f"(?:{cast(LogQuotation, entry).pattern})" for entry in entries))


def _is_quotation(text: str) -> bool:
    """Whether a line repeats what somebody wrote to the server."""
    return _quotations().match(text) is not None


def _matches(line: Line, literals: tuple[str, ...]) -> list[Match]:
    found: dict[str, Match] = {}
    by_literal = _signatures()
    for literal in literals:
        for signature, pattern in by_literal.get(literal, ()):
            match = pattern.search(line.whole) if signature.name not in found else None
            if match is not None:
                values = {name: value for name, value in match.groupdict().items() if value}
                found[signature.name] = Match(signature, line, values)
    return list(found.values())
