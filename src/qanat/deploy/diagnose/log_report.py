"""What logs tell, as text for people and as plain data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from qanat.deploy.diagnose.clock import show_time
from qanat.deploy.diagnose.diagnosis import LogDiagnosis
from qanat.deploy.diagnose.facts import KINDS
from qanat.deploy.diagnose.problems import Problem
from qanat.deploy.diagnose.settings import redact
from qanat.deploy.diagnose.stages import ORDER, WORDS
from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.lint.report import WORDS as LEFT_WORDS

MAX_CHARS = 300
MAX_OTHERS = 20
"""So many problems of one kind are shown; JSON has all."""
FORMAT = 1


def text_report(diagnosis: LogDiagnosis) -> str:
    """The report for people: how far the start came, the first cause, and the rest."""
    parts = [
        list(_head(diagnosis)),
        list(_causes(diagnosis)),
        list(_section("What followed from it", diagnosis.of(Severity.ERROR, consequences=True), brief=True)),
        list(_section("Warnings", diagnosis.of(Severity.WARNING))),
        list(_figures(diagnosis)),
        list(_settings(diagnosis)),
        [_verdict(diagnosis)],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _head(diagnosis: LogDiagnosis) -> Iterator[str]:
    for name, statistics in diagnosis.sources:
        yield f"{name}: {statistics.num_lines:,} lines, {statistics.size_bytes:,} bytes"
        if statistics.brief_from:
            yield f"  so many faults that from line {statistics.brief_from:,} on only known ones were counted"
        if statistics.ended_early:
            yield f"  {statistics.ended_early}"
    if diagnosis.first_time is not None:
        yield f"from {show_time(diagnosis.first_time)} to {show_time(diagnosis.last_time)}"
    if diagnosis.version:
        yield f"vllm-ascend {diagnosis.version} ({diagnosis.version_from})"
    if diagnosis.num_starts > 1:
        yield f"{diagnosis.num_starts} starts; stages, figures and settings are those of the last one"
    if not diagnosis.stages:
        yield "no line of a server's start in it"
        return
    for mark, following in zip(diagnosis.stages, [*diagnosis.stages[1:], None], strict=True):
        until = following.seconds if following else None
        took = ""
        if mark.seconds is not None and until is not None:
            took = f"{max(0.0, until - mark.seconds):.0f} s"
        detail = f" ({mark.detail})" if mark.detail else ""
        yield f"  {show_time(mark.seconds):14}  {took:>7}  {WORDS[mark.stage]}{detail}"
    missing = diagnosis.missing_ranks
    if missing:
        told = ", ".join(str(rank) for rank in missing[:MAX_OTHERS])
        yield f"  no line of rank {told}: the others wait for {'it' if len(missing) == 1 else 'them'}"
    if not diagnosis.is_ready:
        yield f"  the start did not get further than: {WORDS[diagnosis.stages[-1].stage]}"


def _causes(diagnosis: LogDiagnosis) -> Iterator[str]:
    errors = diagnosis.of(Severity.ERROR)
    if errors:
        yield "First fault" + (" (of an earlier start)" if diagnosis.is_of_earlier_start(errors[0]) else "")
        yield from _problem(errors[0])
        rest = errors[1:]
        if rest:
            yield ""
            yield from _section("Other faults, in order of time", rest)
    elif diagnosis.ends_before_ready:
        yield from _end(diagnosis)
    elif diagnosis.of(Severity.ERROR, consequences=True):
        yield "No first fault in these logs, only what follows from one: look at the other ranks and nodes."


def _end(diagnosis: LogDiagnosis) -> Iterator[str]:
    if diagnosis.may_grow:
        yield "The start is not over: the log was written a short while ago, and the engine is not ready yet."
        yield "If its process is gone by now, it ended without a word: look at dmesg, docker inspect, kubectl describe."
        return
    yield "The log ends before the engine was ready, and says not why. Ways to find out:"
    yield "  - was the process ended from outside (dmesg, docker inspect, kubectl describe)?"
    yield "  - do its errors stand elsewhere (standard error, the other ranks and nodes, CANN's plog)?"
    yield "  - does it still run and wait (for other ranks, or in the device; npu-smi and py-spy show it)?"


def _section(title: str, problems: Sequence[Problem], brief: bool = False) -> Iterator[str]:
    if not problems:
        return
    yield title
    for problem in problems[:MAX_OTHERS]:
        yield from _problem(problem, brief)
    if len(problems) > MAX_OTHERS:
        yield f"  ... and {len(problems) - MAX_OTHERS} more (--json shows all)"


def _problem(problem: Problem, brief: bool = False) -> Iterator[str]:
    signature = problem.signature
    name = signature.name if signature else "unknown"
    who = f" [{problem.process}]" if problem.process else ""
    time = show_time(problem.place.seconds)
    seen = "" if problem.num_seen == 1 else f", {problem.num_seen} times"
    others = problem.processes - {problem.process}
    ranks = f", also {_short(sorted(others))}" if others else ""
    when = f" {time}" if time else ""
    place = f"{problem.place.file}:{problem.place.line}"
    yield f"  {place}: {problem.severity.value} {name}{who}{when}{seen}{ranks}"
    for line in problem.detail or (problem.headline,):
        yield f"    | {shorten(line)}"
    if signature is None:
        yield "    cause: not known; the lines above are the end of its traceback"
        return
    yield f"    cause: {signature.cause}"
    if brief:
        return
    if signature.remedy:
        yield f"    remedy: {signature.remedy}"
    if problem.values:
        yield "    says: " + ", ".join(
            f"{name.replace('_', ' ')} {value}" for name, value in problem.values.items()
        )
    yield f"    source: {signature.source} ({signature.confidence})"
    if signature.rules:
        yield f"    rules of qanat deploy lint: {', '.join(signature.rules)}"
    for issue in signature.issues:
        yield f"    thread: {issue}: {load_knowledge().tables['issues'].entries[issue].symptom}"


def _short(names: Sequence[str]) -> str:
    """Names of processes; those that differ in their last number only are given as a range."""
    stems: dict[str, list[int]] = {}
    plain: list[str] = []
    for name in names:
        match = re.fullmatch(r"(.*?)(\d+)", name)
        if match is None:
            plain.append(name)
        else:
            stems.setdefault(match.group(1), []).append(int(match.group(2)))
    for stem, numbers in stems.items():
        numbers.sort()
        is_range = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
        plain.append(
            f"{stem}{numbers[0]} to {numbers[-1]}"
            if is_range
            else ", ".join(f"{stem}{one}" for one in numbers)
        )
    return ", ".join(plain)


def _figures(diagnosis: LogDiagnosis) -> Iterator[str]:
    facts = [fact for name in KINDS if (fact := diagnosis.facts.by_name.get(name))]
    if facts:
        yield "Figures in the log"
        width = max(len(fact.label) for fact in facts)
        has_one = len(diagnosis.sources) == 1
        for fact in facts:
            place = f"line {fact.line}" if has_one else f"{fact.file}:{fact.line}"
            yield f"  {fact.label:{width}}  {redact(fact.shown)}  ({place})"
    told = [one for one in diagnosis.of(Severity.INFO) if one.signature and not set(one.values) & set(KINDS)]
    for problem in told:
        if problem.signature is not None and problem.signature.stage != "ready":
            yield f"  {problem.signature.name}: {problem.signature.cause} ({problem.place.file}:{problem.place.line})"


def _settings(diagnosis: LogDiagnosis) -> Iterator[str]:
    if not diagnosis.findings:
        return
    yield "Settings in the log"
    for one in diagnosis.findings:
        finding = one.finding
        yield f"  {one.file}:{one.line}: {finding.severity.value} {finding.rule_id}: {shorten(finding.message)}"
        unless = f", unless {one.unless} is set, which the log does not show" if one.unless else ""
        yield f"    if left: {LEFT_WORDS[finding.consequence]}{unless}"
        if finding.fix.text:
            yield f"    fix: {finding.fix.text}"


def _verdict(diagnosis: LogDiagnosis) -> str:
    num_faults = len(diagnosis.of(Severity.ERROR)) + len(diagnosis.of(Severity.ERROR, consequences=True))
    num_settings = sum(one.is_fault for one in diagnosis.findings)
    parts = []
    if num_faults:
        parts.append(f"{num_faults} fault{'' if num_faults == 1 else 's'}")
    warnings = len(diagnosis.of(Severity.WARNING))
    if warnings:
        parts.append(f"{warnings} warning{'' if warnings == 1 else 's'}")
    if num_settings:
        parts.append(f"{num_settings} setting{'' if num_settings == 1 else 's'} to change")
    if diagnosis.ends_before_ready:
        parts.append("not ready yet" if diagnosis.may_grow else "the log ends before the engine was ready")
    return ", ".join(parts) if parts else "nothing wrong found"


def shorten(text: str) -> str:
    """A line of a log without secrets, cut if it is long."""
    text = redact(text)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} ..."


def json_report(diagnosis: LogDiagnosis) -> dict[str, object]:
    """All that was found, as plain data."""
    return {
        "format": FORMAT,
        "sources": [
            {
                "name": name,
                "num_lines": statistics.num_lines,
                "size_bytes": statistics.size_bytes,
                "ended_early": statistics.ended_early,
                "brief_from": statistics.brief_from,
            }
            for name, statistics in diagnosis.sources
        ],
        "version": diagnosis.version,
        "version_from": diagnosis.version_from,
        "num_starts": diagnosis.num_starts,
        "is_ready": diagnosis.is_ready,
        "ends_before_ready": diagnosis.ends_before_ready,
        "may_grow": diagnosis.may_grow,
        "missing_ranks": diagnosis.missing_ranks,
        "stages": [
            {"stage": mark.stage, "time": show_time(mark.seconds), "detail": mark.detail}
            for mark in sorted(diagnosis.stages, key=lambda one: ORDER.index(one.stage))
        ],
        "problems": [
            {**_problem_data(problem), "is_of_earlier_start": diagnosis.is_of_earlier_start(problem)}
            for problem in _ordered(diagnosis)
        ],
        "facts": {
            name: {"value": redact(fact.value), "label": fact.label, "file": fact.file, "line": fact.line}
            for name, fact in diagnosis.facts.by_name.items()
        },
        "settings": [
            {
                "rule": one.finding.rule_id,
                "severity": one.finding.severity.value,
                "message": one.finding.message,
                "fix": one.finding.fix.text,
                "file": one.file,
                "line": one.line,
                "unless": one.unless or None,
            }
            for one in diagnosis.findings
        ],
        "has_faults": diagnosis.has_faults,
    }


def _ordered(diagnosis: LogDiagnosis) -> list[Problem]:
    """First causes, then consequences, then the rest, each in order of time."""
    return [
        *diagnosis.of(Severity.ERROR),
        *diagnosis.of(Severity.ERROR, consequences=True),
        *diagnosis.of(Severity.WARNING),
        *diagnosis.of(Severity.INFO),
    ]


def _problem_data(problem: Problem) -> dict[str, object]:
    signature = problem.signature
    return {
        "signature": signature.name if signature else None,
        "severity": problem.severity.value,
        "is_consequence": problem.is_consequence,
        "file": problem.place.file,
        "line": problem.place.line,
        "time": show_time(problem.place.seconds),
        "process": problem.process,
        "processes": sorted(problem.processes),
        "num_seen": problem.num_seen,
        "text": shorten(problem.headline),
        "detail": [shorten(line) for line in problem.detail],
        "values": {name: shorten(value) for name, value in problem.values.items()},
        "cause": signature.cause if signature else None,
        "remedy": signature.remedy if signature else None,
        "rules": list(signature.rules) if signature else [],
        "issues": list(signature.issues) if signature else [],
        "source": signature.source if signature else None,
        "confidence": signature.confidence if signature else None,
    }
