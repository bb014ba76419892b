"""Safe fixes applied to texts: all edits of a fix or none."""

from __future__ import annotations

from collections.abc import Sequence

from qanat.deploy.lint.finding import Edit, Finding


def chosen_fixes(findings: Sequence[Finding]) -> list[Finding]:
    """Findings whose edits can be made together: of two that touch the same characters the first stays."""
    taken: list[Edit] = []
    chosen: list[Finding] = []
    for finding in findings:
        edits = finding.fix.edits
        new = [edit for edit in edits if edit not in taken]
        if edits and not any(_overlap(edit, other) for edit in new for other in taken):
            taken += new
            chosen.append(finding)
    return chosen


def _overlap(edit: Edit, other: Edit) -> bool:
    if edit.place.path != other.place.path:
        return False
    is_same_start = edit.place.start == other.place.start
    return is_same_start or (edit.place.start < other.place.end and other.place.start < edit.place.end)


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """The text with every edit made; edits do not overlap."""
    for edit in sorted(set(edits), key=lambda one: one.place.start, reverse=True):
        text = text[: edit.place.start] + edit.replacement + text[edit.place.end :]
    return text
