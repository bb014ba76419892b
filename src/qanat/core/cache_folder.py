"""A private folder of large files that can be made again: whole or absent, bounded in size, shared by processes.

Each entry is a file `<key>.packed`, 64 hexadecimal digits being the key. Who reads one holds a shared lock on it for as
long as it is mapped; what is being written has the suffix `.new` and is locked by its writer; what turned out to be
damaged has the suffix `.bad`. Nothing else in the folder is ever touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qanat.core.cache_entry import (
    EntryError,
    Index,
    Progress,
    check_pieces,
    entry_bytes,
    read_index,
    write_entry,
)
from qanat.core.cache_lock import claim, drop, give_name, is_locked, remove_unfinished
from qanat.core.private_folder import SPARE_BYTES, default_bytes, folder_problem, free_bytes

logger = logging.getLogger(__name__)

PACKED, NEW, BAD = ".packed", ".new", ".bad"

_OURS = re.compile(r"[0-9a-f]{64}\.(packed|new|bad)")


class CacheRefusedError(Exception):
    """The folder or the disk does not allow it; the message says why."""


@dataclass(frozen=True)
class CachedFile:
    """A file of the cache, as it lies there.

    Attributes:
        path: of the file.
        size_bytes: of it.
        used_at_s: when it was last mapped or written, in seconds since the epoch.
        is_in_use: a process has it mapped or writes it.
    """

    path: Path
    size_bytes: int
    used_at_s: float
    is_in_use: bool


@dataclass(frozen=True)
class OpenEntry:
    """An entry that is locked against removal for as long as its descriptor is open.

    Attributes:
        descriptor: of the file; to be closed by whoever opened it, after mapping it: a mapping keeps the lock.
        size_bytes: of the file.
        index: what it holds.
    """

    descriptor: int
    size_bytes: int
    index: Index


class CacheFolder:
    """The folder.

    Args:
        path: of it; it is made when the first entry is written.
        max_bytes: that all entries together may take; None for half of what is free with the cache empty.
    """

    def __init__(self, path: Path, max_bytes: int | None = None) -> None:
        self.path = path
        self._max_bytes = max_bytes

    def max_bytes(self) -> int:
        """Bound of all entries together."""
        if self._max_bytes is not None:
            return self._max_bytes
        return default_bytes(self.path, sum(each.size_bytes for each in self.files()))

    def files(self) -> list[CachedFile]:
        """What lies there, the longest unused first; damaged and unfinished ones are among them."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.path) as entries:
            for entry in entries:
                if _OURS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    path = Path(entry.path)
                    found.append(CachedFile(path, status.st_size, status.st_mtime, _is_in_use(path)))
        return sorted(found, key=lambda each: each.used_at_s)

    def open(self, key: str) -> OpenEntry | None:
        """The entry with this key, checked but for its pieces and locked; None if there is none.

        Raises:
            EntryError: it is damaged; it was set aside, so that it can be made again.
            CacheRefusedError: the folder is not private.
        """
        path = self.path_of(key)
        if not path.exists():
            return None
        if problem := folder_problem(self.path):
            raise CacheRefusedError(problem)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise CacheRefusedError(f"{path} cannot be opened: {error.strerror or error}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except OSError as error:
            os.close(descriptor)
            raise CacheRefusedError(f"{path} cannot be locked: {error.strerror or error}") from None
        try:
            index = read_index(descriptor, key)
        except (EntryError, OSError) as error:
            os.close(descriptor)
            self.set_aside(path)
            raise EntryError(f"{path.name} is damaged ({error})") from None
        with contextlib.suppress(OSError):  # an unchanged time only makes it go earlier
            os.utime(descriptor)
        return OpenEntry(descriptor, os.fstat(descriptor).st_size, index)

    def path_of(self, key: str) -> Path:
        """Where the entry with this key lies, if it does."""
        return self.path / f"{key}{PACKED}"

    def set_aside(self, path: Path) -> None:
        """Renames a damaged entry, so that nobody opens it again."""
        with contextlib.suppress(OSError):
            path.rename(path.with_suffix(BAD))

    def store(
        self,
        key: str,
        pieces: Iterable[memoryview],
        sizes: Iterable[int],
        *,
        made_by: str,
        label: str,
        description: Any,
    ) -> int:
        """Writes an entry unless another process does or has; returns its size in bytes, 0 if it was left to others.

        Args:
            key: 64 hexadecimal digits.
            pieces: the bytes, read one after the other.
            sizes: of the pieces.
            made_by: version of Qanat.
            label: what it is, for people.
            description: kept beside the pieces; JSON-ready.

        Raises:
            CacheRefusedError: folder, disk or bound do not allow it; nothing is left behind.
        """
        final, fresh = self.path_of(key), self.path / f"{key}{NEW}"
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if problem := folder_problem(self.path):
                raise CacheRefusedError(problem)
            descriptor = claim(fresh)
        except OSError as error:
            raise CacheRefusedError(f"{error.filename or self.path}: {error.strerror or error}") from None
        if descriptor is None:
            logger.info("%s is left alone: another process writes it", final)
            return 0
        try:
            if final.exists():
                logger.info("%s is left alone: another process has written it", final)
                drop(descriptor, fresh)
                return 0
            os.ftruncate(descriptor, 0)  # what an ended writer left in it is no part of what is used
            self._make_room(entry_bytes(sizes))
            size = write_entry(
                descriptor, pieces, key=key, made_by=made_by, label=label, description=description
            )
            give_name(descriptor, fresh, final)
            return size
        except OSError as error:
            drop(descriptor, fresh)
            raise CacheRefusedError(f"{fresh}: {error.strerror or error}") from None
        except CacheRefusedError:
            drop(descriptor, fresh)
            raise
        finally:
            os.close(descriptor)

    def clear(self) -> list[CachedFile]:
        """Removes all files of the cache but one that is being written; returns them.

        A process that has one mapped keeps it: the system frees the space when it ends.
        """
        return [
            each
            for each in self.files()
            if not (each.is_in_use and each.path.suffix == NEW) and _removed(each)
        ]

    def verify(self, progress: Progress | None = None) -> Iterator[tuple[CachedFile, str]]:
        """Reads every entry in full; yields each with what is wrong with it, if anything. Damaged ones go aside."""
        for each in self.files():
            if each.path.suffix != PACKED:
                continue
            try:
                descriptor = os.open(each.path, os.O_RDONLY | os.O_NOFOLLOW)
            except OSError:  # removed meanwhile
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                check_pieces(descriptor, read_index(descriptor, each.path.stem), progress)
                yield each, ""
            except (EntryError, OSError) as error:
                self.set_aside(each.path)
                yield each, str(error)
            finally:
                os.close(descriptor)

    def _make_room(self, size_bytes: int) -> None:
        """Removes what was not used for the longest time until so much more is within the bound and on the disk.

        Raises:
            CacheRefusedError: all that nobody uses is not enough; nothing was removed then.
        """
        for each in self.files():
            if each.path.suffix == NEW and not each.is_in_use:  # its writer was ended
                _removed(each)
        limit, files = self.max_bytes(), self.files()
        used = sum(each.size_bytes for each in files)
        free = free_bytes(self.path)
        loose = [each for each in files if not each.is_in_use]
        loose.sort(key=lambda each: (each.path.suffix == PACKED, each.used_at_s))
        going: list[CachedFile] = []
        while used + size_bytes > limit or free - size_bytes < SPARE_BYTES:
            if len(going) == len(loose):
                raise CacheRefusedError(
                    f"{_mib(size_bytes)} more are not within --cache-max-bytes ({_mib(limit)}, "
                    f"{_mib(used)} of them in use) and on the disk ({_mib(free)} free)"
                )
            going.append(loose[len(going)])
            used -= going[-1].size_bytes
            free += going[-1].size_bytes
        for each in going:
            _removed(each)


def _removed(file: CachedFile) -> bool:
    if file.path.suffix == NEW:
        return remove_unfinished(file.path)
    try:
        file.path.unlink()
    except OSError:
        return False
    return True


def _is_in_use(path: Path) -> bool:
    """True if a process has the file mapped or writes it."""
    # Who reads an entry shares its lock; the lock of an unfinished one must stay free for its writer.
    return is_locked(path, fcntl.LOCK_SH if path.suffix == NEW else fcntl.LOCK_EX)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.1f} MiB"
