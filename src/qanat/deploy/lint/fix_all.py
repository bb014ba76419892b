"""Safe fixes applied until none is left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.lint.finding import Finding, Fix
from qanat.deploy.lint.fixes import apply_edits, chosen_fixes
from qanat.deploy.sources.launch import Document

MAX_ROUNDS = 20
"""A fix may make room for another one; a chain of them is short."""


@dataclass(frozen=True)
class Checked:
    """Files as they were read, and what was found in them."""

    documents: Sequence[Document]
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Fixed:
    """What became of files.

    Attributes:
        texts: their content, by path.
        left: what is found in them now.
        num_fixes: that were applied.
        num_files: that have changed.
        is_stopped: a further round would have left more faults than before, and was not made.
    """

    texts: Mapping[str, str]
    left: Checked
    num_fixes: int
    num_files: int
    is_stopped: bool

    def summary(self, num_findings: int) -> str:
        """What was done, in one line.

        Args:
            num_findings: before the first fix.
        """
        text = f"fixed: {self.num_fixes}; findings before: {num_findings}; files changed: {self.num_files}"
        return f"{text}; further fixes would make more findings, they were left" if self.is_stopped else text


def own_fix(finding: Finding, texts: Collection[str]) -> Finding:
    """The finding; without edits if they would change a file that is none of `texts`."""
    if all(edit.place.path in texts for edit in finding.fix.edits):
        return finding
    return replace(finding, fix=Fix(finding.fix.text))


def fix_all(
    texts: Mapping[str, str], checked: Checked, check: Callable[[Mapping[str, str]], Checked]
) -> Fixed:
    """Applies safe fixes, checks again, and goes on until there is none left.

    Args:
        texts: the files that may change, by path.
        checked: what was found in them; edits are of these files only, see `own_fix`.
        check: reads and checks changed texts.
    """
    current, num_fixes = dict(texts), 0
    is_stopped = False
    for _ in range(MAX_ROUNDS):
        fixes = chosen_fixes(checked.findings)
        edits = [edit for finding in fixes for edit in finding.fix.edits]
        changed = {
            path: apply_edits(text, [edit for edit in edits if edit.place.path == path])
            for path, text in current.items()
        }
        if changed == current:
            break
        after = check(changed)
        if _num_faults(after.findings) > _num_faults(checked.findings):
            is_stopped = True
            break
        current, checked, num_fixes = changed, after, num_fixes + len(fixes)
    num_files = sum(current[path] != text for path, text in texts.items())
    return Fixed(current, checked, num_fixes, num_files, is_stopped)


def _num_faults(findings: Sequence[Finding]) -> int:
    return sum(finding.severity is not Severity.INFO for finding in findings)
