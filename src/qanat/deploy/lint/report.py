"""Findings as text, as JSON, and as SARIF 2.1.0 for code review."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from urllib.parse import quote

from qanat.deploy.knowledge.kinds.rules import Consequence, Rule, Severity
from qanat.deploy.lint.finding import Edit, Finding
from qanat.deploy.sources.values import Place

SARIF_VERSION = "2.1.0"
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
WORDS = {
    Consequence.START_FAILS: "the start fails",
    Consequence.IGNORED: "silently ignored",
    Consequence.SLOWER: "slower than it could be",
    Consequence.WRONG: "wrong results",
    Consequence.RISK: "a risk",
}
"""What happens if a finding is left, in words."""


def has_faults(findings: Sequence[Finding]) -> bool:
    """Whether anything was found that asks for a change."""
    return any(finding.severity is not Severity.INFO for finding in findings)


def text_report(findings: Sequence[Finding], num_files: int, num_recognised: int) -> str:
    """One paragraph for each finding, and a line that counts them.

    Args:
        findings: in order.
        num_files: that were read.
        num_recognised: of these, with anything that rules look at.
    """
    paragraphs = [_paragraph(finding) for finding in findings]
    return "\n".join([*paragraphs, summary(findings, num_files, num_recognised)])


def summary(findings: Sequence[Finding], num_files: int, num_recognised: int) -> str:
    """How much was found, in one line, and how many files hold nothing that is known."""
    counts = Counter(finding.severity for finding in findings)
    files = _counted(num_files, "file")
    if num_recognised < num_files:
        files += f" ({num_files - num_recognised} without anything that is known)"
    if not findings:
        return f"{files}: nothing found"
    parts = [
        _counted(counts[Severity.ERROR], "error"),
        _counted(counts[Severity.WARNING], "warning"),
        f"{counts[Severity.INFO]} info",
    ]
    return f"{files}: {', '.join(parts)}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _paragraph(finding: Finding) -> str:
    place = finding.place
    lines = [
        f"{place.path}:{place.line}:{place.column}: {finding.severity.value} {finding.rule_id}: {finding.message}"
    ]
    bounds = _bounds(finding)
    lines.append(f"    if left: {WORDS[finding.consequence]}{f' ({bounds})' if bounds else ''}")
    if finding.fix.text:
        safe = " [--fix does it]" if finding.fix.edits else ""
        lines.append(f"    fix: {finding.fix.text}{safe}")
    lines.append(f"    source: {finding.source}")
    return "\n".join(lines)


def _bounds(finding: Finding) -> str:
    parts = []
    if finding.since:
        parts.append(f"since {finding.since}")
    if finding.until:
        parts.append(f"until {finding.until}")
    if finding.version:
        parts.append(f"checked for {finding.version}")
    return ", ".join(parts)


def json_report(findings: Sequence[Finding], num_files: int, num_recognised: int) -> dict[str, object]:
    """All findings as plain data; for the arguments see `text_report`."""
    counts = Counter(finding.severity for finding in findings)
    return {
        "format": 1,
        "num_files": num_files,
        "num_recognised": num_recognised,
        "counts": {severity.value: counts[severity] for severity in Severity},
        "findings": [_as_data(finding) for finding in findings],
    }


def _as_data(finding: Finding) -> dict[str, object]:
    return {
        "rule": finding.rule_id,
        "severity": finding.severity.value,
        "consequence": finding.consequence.value,
        **_lines(finding.place),
        "message": finding.message,
        "fix": finding.fix.text,
        "edits": [{**_lines(edit.place), "replacement": edit.replacement} for edit in finding.fix.edits],
        "since": finding.since,
        "until": finding.until,
        "version": finding.version,
        "source": finding.source,
    }


def _lines(place: Place) -> dict[str, object]:
    return {
        "file": place.path,
        "line": place.line,
        "column": place.column,
        "end_line": place.end_line,
        "end_column": place.end_column,
    }


def sarif_report(findings: Sequence[Finding], rules: Mapping[str, Rule], version: str) -> dict[str, object]:
    """The findings as one SARIF run.

    Args:
        findings: in order.
        rules: by id; those of the findings are described.
        version: of qanat.
    """
    used = [rule_id for rule_id in sorted({finding.rule_id for finding in findings}) if rule_id in rules]
    driver = {
        "name": "qanat deploy lint",
        "version": version,
        "rules": [_sarif_rule(rules[rule_id]) for rule_id in used],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(finding, used) for finding in findings],
    }
    return {"$schema": SARIF_SCHEMA, "version": SARIF_VERSION, "runs": [run]}


def _sarif_rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": f"{rule.when} {rule.effect}"},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"consequence": rule.consequence.value, "source": rule.source},
    }


def _sarif_result(finding: Finding, used: Sequence[str]) -> dict[str, object]:
    result: dict[str, object] = {
        "ruleId": finding.rule_id,
        "level": LEVELS[finding.severity],
        "message": {
            "text": f"{finding.message} Fix: {finding.fix.text}" if finding.fix.text else finding.message
        },
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact(finding.place),
                    "region": _region(finding.place),
                }
            }
        ],
        "properties": {
            "consequence": finding.consequence.value,
            "since": finding.since,
            "until": finding.until,
            "version": finding.version,
            "source": finding.source,
        },
    }
    if finding.rule_id in used:
        result["ruleIndex"] = used.index(finding.rule_id)
    if finding.fix.edits:
        by_path: dict[str, list[Edit]] = {}
        for edit in finding.fix.edits:
            by_path.setdefault(edit.place.path, []).append(edit)
        changes = [
            {
                "artifactLocation": _artifact(edits[0].place),
                "replacements": [
                    {"deletedRegion": _region(edit.place), "insertedContent": {"text": edit.replacement}}
                    for edit in edits
                ],
            }
            for edits in by_path.values()
        ]
        result["fixes"] = [{"description": {"text": finding.fix.text}, "artifactChanges": changes}]
    return result


def _artifact(place: Place) -> dict[str, object]:
    path = PurePath(place.path)
    return {"uri": path.as_uri() if path.is_absolute() else quote(path.as_posix())}


def _region(place: Place) -> dict[str, object]:
    return {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
