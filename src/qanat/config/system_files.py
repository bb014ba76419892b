"""Files in which the system tells of itself, below /proc and /sys: any of them may be missing."""

from __future__ import annotations

from pathlib import Path


def read_system_file(path: Path) -> str:
    """The text without white space at its ends; empty where there is no such file, or it may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
