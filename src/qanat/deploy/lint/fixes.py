"""Files read and safe fixes applied to them: all edits of a fix or none, each file written in one piece."""

from __future__ import annotations

import codecs
import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

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


def read_file(path: Path) -> str:
    """A file's text: UTF-8 (bytes that are none are kept as they are), or UTF-16 if it begins with its mark.

    Raises:
        OSError: it cannot be read.
    """
    return decode(path.read_bytes())


def decode(data: bytes) -> str:
    """Bytes as text, as `read_file` does."""
    return data.decode(_encoding(data), errors="surrogateescape" if _encoding(data) == "utf-8" else "replace")


def _encoding(data: bytes) -> str:
    return "utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"


def write_file(path: Path, text: str) -> None:
    """Replaces a file's content in one step; readers see the old or the new one. Its mode and encoding are kept.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    target = path.resolve()
    with target.open("rb") as before:
        encoding = _encoding(before.read(2))
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        errors = "surrogateescape" if encoding == "utf-8" else "strict"
        with os.fdopen(handle, "w", encoding=encoding, errors=errors, newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, target.stat().st_mode & 0o7777)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
