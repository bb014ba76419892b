from __future__ import annotations

import json

from qanat.deploy.knowledge.kinds.rules import Consequence, Severity
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.lint.finding import Edit, Finding, Fix
from qanat.deploy.lint.fixes import apply_edits, chosen_fixes
from qanat.deploy.lint.report import json_report, sarif_report, text_report
from qanat.deploy.sources.values import Place, Source

SOURCE = Source("deploy dir/run.sh", "vllm serve m \\\n  –port 1 -host 2\n")


def place(text: str) -> Place:
    start = SOURCE.text.index(text)
    return SOURCE.place(start, start + len(text))


def finding(text: str, replacement: str | None = None, severity: Severity = Severity.ERROR) -> Finding:
    edits = (Edit(place(text), replacement),) if replacement is not None else ()
    return Finding(
        rule_id="CLI001",
        severity=severity,
        consequence=Consequence.START_FAILS,
        place=place(text),
        message=f"{text} begins with the wrong dash",
        fix=Fix("Two ASCII dashes.", edits),
        source="argparse",
        since="0.11.0",
        version="0.18.0rc1",
    )


def test_text_says_where_what_happens_and_what_to_do() -> None:
    report = text_report([finding("–port", "--port"), finding("-host", severity=Severity.INFO)], 1, 1)
    assert report.splitlines() == [
        "deploy dir/run.sh:2:3: error CLI001: –port begins with the wrong dash",
        "    if left: the start fails (since 0.11.0, checked for 0.18.0rc1)",
        "    fix: Two ASCII dashes. [--fix does it]",
        "    source: argparse",
        "deploy dir/run.sh:2:11: info CLI001: -host begins with the wrong dash",
        "    if left: the start fails (since 0.11.0, checked for 0.18.0rc1)",
        "    fix: Two ASCII dashes.",
        "    source: argparse",
        "1 file: 1 error, 0 warnings, 1 info",
    ]
    assert text_report([], 3, 3) == "3 files: nothing found"
    assert text_report([], 3, 1) == "3 files (2 without anything that is known): nothing found"


def test_json_holds_every_field() -> None:
    report = json_report([finding("–port", "--port")], 2, 1)
    assert json.loads(json.dumps(report)) == {
        "format": 1,
        "num_files": 2,
        "num_recognised": 1,
        "counts": {"error": 1, "warning": 0, "info": 0},
        "findings": [
            {
                "rule": "CLI001", "severity": "error", "consequence": "start_fails", "file": "deploy dir/run.sh",
                "line": 2, "column": 3, "end_line": 2, "end_column": 8, "message": "–port begins with the wrong dash",
                "fix": "Two ASCII dashes.", "since": "0.11.0", "until": None, "version": "0.18.0rc1",
                "source": "argparse",
                "edits": [{"file": "deploy dir/run.sh", "line": 2, "column": 3, "end_line": 2, "end_column": 8,
                           "replacement": "--port"}],
            }
        ],
    }  # fmt: skip


def test_sarif_points_at_lines_and_describes_its_rules() -> None:
    findings = [finding("–port", "--port"), finding("-host", severity=Severity.INFO)]
    report = json.loads(json.dumps(sarif_report(findings, load_knowledge().rules, "1.0")))
    assert report["version"] == "2.1.0" and report["$schema"].endswith("sarif-2.1.0.json")
    (run,) = report["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("qanat deploy lint", "1.0")
    assert [rule["id"] for rule in driver["rules"]] == ["CLI001"]
    assert driver["rules"][0]["defaultConfiguration"]["level"] == "error"
    first, second = run["results"]
    assert (first["level"], second["level"], first["ruleIndex"]) == ("error", "note", 0)
    region = {"startLine": 2, "startColumn": 3, "endLine": 2, "endColumn": 8}
    assert first["locations"] == [
        {"physicalLocation": {"artifactLocation": {"uri": "deploy%20dir/run.sh"}, "region": region}}
    ]
    (change,) = first["fixes"][0]["artifactChanges"]
    assert change["replacements"] == [{"deletedRegion": region, "insertedContent": {"text": "--port"}}]
    assert "fixes" not in second


def test_fixes_that_touch_the_same_characters_are_not_both_made() -> None:
    fixes = [finding("–port", "--port"), finding("port 1", "port 2"), finding("-host", "--host")]
    chosen = chosen_fixes(fixes)
    assert chosen == [fixes[0], fixes[2]]
    edits = [edit for one in chosen for edit in one.fix.edits]
    assert apply_edits(SOURCE.text, [*edits, edits[0]]) == "vllm serve m \\\n  --port 1 --host 2\n"
