"""A folder that is to be one user's alone, and the disk that it lies on; neither needs to be there yet."""

from __future__ import annotations

import os
import stat
from pathlib import Path

SHARE_OF_DISK = 0.5
"""Without a bound of its own a cache takes at most so much of what is free with the cache empty."""
SPARE_BYTES = 64 * 2**20
"""Left free on the disk in any case."""


def folder_problem(path: Path) -> str:
    """Why the folder cannot be used, with what to do; empty if it can, or can be made."""
    place = path
    if not place.is_absolute():
        return "this user has no home folder: say with --cache-dir where it shall lie"
    try:
        while not place.exists():
            place = place.parent
        found = place.stat()
    except OSError as error:
        return f"{place} cannot be looked at: {error.strerror or error}"
    if not stat.S_ISDIR(found.st_mode):
        return f"{place} is no folder"
    if place == path:
        if found.st_uid != os.geteuid():
            return f"{place} belongs to another user (number {found.st_uid}), who could change what is kept there"
        if found.st_mode & 0o077:
            return f"{place} is open to others (mode {stat.S_IMODE(found.st_mode):04o}): chmod 700 it"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"{place} cannot be written to"
    return ""


def free_bytes(path: Path) -> int:
    """Free space of the folder's disk; 0 if that cannot be told."""
    place = path
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        found = os.statvfs(place)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def default_bytes(path: Path, used_bytes: int) -> int:
    """What a cache may take that has no bound of its own.

    Args:
        path: its folder.
        used_bytes: that it takes now.
    """
    return int(SHARE_OF_DISK * (free_bytes(path) + used_bytes))
