"""Locks of the cache's files, and what is done to unfinished ones only by who holds theirs.

An unfinished file is its writer's for as long as that has it locked. Who finds it loose may be too late: between the
look and the deed its writer can have come. So it is written and removed under the same lock, and a lock counts only if
the file still has its name then.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from qanat.core.whole_file import sync_folder

NUM_TRIES = 10
PAUSE_S = 0.02
"""Between tries to lock a file for writing: others hold it for a moment to look at it, or to remove it."""


def is_locked(path: Path, how: int) -> bool:
    """True if a process holds a lock on the file that this one (`fcntl.LOCK_SH` or `LOCK_EX`) cannot be beside."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def claim(path: Path) -> int | None:
    """Opens an unfinished file for writing, made where there is none, and locks it; None if another process writes it.

    Returns:
        The descriptor; who closes it gives the file up.

    Raises:
        OSError: it cannot be made, opened or locked at all.
    """
    for attempt in range(NUM_TRIES):
        if attempt:
            time.sleep(PAUSE_S)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        is_ours = False
        try:
            is_ours = _has_locked(descriptor) and _has_name(descriptor, path)
        finally:
            if not is_ours:
                os.close(descriptor)
        if is_ours:
            return descriptor
    return None


def remove_unfinished(path: Path) -> bool:
    """Removes an unfinished file that nobody writes; False if it is still there, or was gone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return _has_locked(descriptor) and drop(descriptor, path)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def drop(descriptor: int, path: Path) -> bool:
    """Removes a file that is locked by its descriptor; False if it no longer has that name, or cannot be removed."""
    if not _has_name(descriptor, path):
        return False
    try:
        path.unlink()
    except OSError:
        return False
    return True


def give_name(descriptor: int, fresh: Path, final: Path) -> None:
    """Renames a file that is written and locked by its descriptor, and brings the new name to the disk.

    Raises:
        OSError: the file was removed meanwhile, or cannot be renamed.
    """
    if not _has_name(descriptor, fresh):
        raise FileNotFoundError(errno.ENOENT, "removed while it was written", str(fresh))
    os.rename(fresh, final)
    sync_folder(final.parent)


def _has_name(descriptor: int, path: Path) -> bool:
    """True if the opened file is the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except OSError:
        return False


def _has_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
