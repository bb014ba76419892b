"""Whether a process of this machine still writes a file: what /proc shows of open files."""

from __future__ import annotations

import os
from pathlib import Path

_PROCESSES = Path("/proc")


def has_writer(path: str) -> bool | None:
    """Whether a process has the file open to write.

    Args:
        path: of the file.

    Returns:
        None where that cannot be seen: processes of other users, or a system without /proc.
    """
    try:
        wanted = os.stat(path)
        processes = [one for one in _PROCESSES.iterdir() if one.name.isdecimal()]
    except OSError:
        return None
    are_all_seen = bool(processes)
    for process in processes:
        try:
            numbers = os.listdir(process / "fd")
        except FileNotFoundError:
            continue
        except OSError:
            are_all_seen = False
            continue
        if any(_writes(process, number, wanted) for number in numbers):
            return True
    return False if are_all_seen else None


def _writes(process: Path, number: str, wanted: os.stat_result) -> bool:
    try:
        found = os.stat(process / "fd" / number)
        if (found.st_dev, found.st_ino) != (wanted.st_dev, wanted.st_ino):
            return False
        words = (process / "fdinfo" / number).read_text(encoding="ascii").split()
        return int(words[words.index("flags:") + 1], 8) & os.O_ACCMODE != os.O_RDONLY
    except (OSError, ValueError, IndexError):  # it was closed, or its process has ended
        return False
