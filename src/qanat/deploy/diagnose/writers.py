"""Whether a process of this machine still writes a file: what /proc shows of open files."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

_PROCESSES = Path("/proc")
# The number that Linux gives the host's own space of processes (include/linux/proc_ns.h, PROC_PID_INIT_INO).
_HOST_PROCESSES = "pid:[4026531836]"
# Only this host can write there. Of others, as network file systems and folders of virtual machines, that is not known.
_LOCAL_KINDS = frozenset(
    (
        "bcachefs",
        "btrfs",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "jfs",
        "overlay",
        "ramfs",
        "reiserfs",
        "tmpfs",
        "xfs",
        "zfs",
    )
)
# Threads of the kernel that write for other hosts; they have no open files to be seen.
_SERVERS = ("nfsd", "ksmbd")


def has_writer(path: str) -> bool | None:
    """Whether a process has the file open to write.

    Args:
        path: of the file.

    Returns:
        None where that cannot be seen: processes of other users, or outside of this container, files that other hosts
        may write, or a system without /proc.
    """
    try:
        wanted = os.stat(path)
        processes = [one for one in _PROCESSES.iterdir() if one.name.isdecimal()]
    except OSError:
        return None
    # Where processes of others are hidden the first is too, which is root's.
    are_all_seen = any(one.name == "1" for one in processes)
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
        if not numbers and _name(process).startswith(_SERVERS):
            are_all_seen = False
    return False if are_all_seen and _are_processes_the_hosts() and _is_local(path) else None


def _writes(process: Path, number: str, wanted: os.stat_result) -> bool:
    try:
        found = os.stat(process / "fd" / number)
        if (found.st_dev, found.st_ino) != (wanted.st_dev, wanted.st_ino):
            return False
        words = (process / "fdinfo" / number).read_text(encoding="ascii").split()
        return int(words[words.index("flags:") + 1], 8) & os.O_ACCMODE != os.O_RDONLY
    except (OSError, ValueError, IndexError):  # it was closed, or its process has ended
        return False


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _are_processes_the_hosts() -> bool:
    """Whether /proc shows the whole host, and not what runs in one container."""
    try:
        return os.readlink(_PROCESSES / "self" / "ns" / "pid") == _HOST_PROCESSES
    except OSError:
        return False


def _is_local(path: str) -> bool:
    """Whether the file system that holds the file is written by this host alone (proc_pid_mountinfo(5))."""
    kind, depth = "", 0
    file = PurePath(os.path.realpath(path))
    try:
        rows = (_PROCESSES / "self" / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    for row in rows.splitlines():
        place, _, source = row.partition(" - ")
        point = PurePath(_unescaped(place.split(" ")[4]))
        # A later mount at the same place lies over the earlier one.
        if file.is_relative_to(point) and len(point.parts) >= depth:
            kind, depth = source.split(" ")[0], len(point.parts)
    return kind in _LOCAL_KINDS


def _unescaped(word: str) -> str:
    for escaped, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(escaped, character)
    return word
