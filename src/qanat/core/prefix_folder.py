"""The private folder that keeps prefixes between starts: one file for each entry and rank, whole or absent.

A file is written under the suffix `.new`, brought to the disk and renamed; nothing ever changes it afterwards. What is
damaged is removed, what belongs to another model or other kernels is left alone until its room is needed. Files with
other names are never touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from qanat.core.cache_entry import EntryError, Index, read_index, read_pieces, write_entry
from qanat.core.cache_lock import claim, drop, give_name, remove_unfinished
from qanat.core.prefix_entry import PrefixEntry, PrefixIdentity
from qanat.core.private_folder import SPARE_BYTES, default_bytes, folder_problem, free_bytes

logger = logging.getLogger(__name__)

KEPT, NEW = ".prefix", ".new"
_OURS = re.compile(r"[0-9a-f]{64}-[sb][0-9]+-(?P<identity>[0-9a-f]{16})-[0-9]+of[0-9]+\.(prefix|new)")


class _Description(msgspec.Struct, frozen=True):
    """What stands in a file beside its pieces."""

    identity: dict[str, str]
    entry: PrefixEntry


@dataclass(frozen=True)
class KeptFile:
    """A file of the folder.

    Attributes:
        path: of it.
        size_bytes: of it.
        used_at_s: when it was written or last loaded, in seconds since the epoch.
        is_kin: of the same identity, whatever rank's it is.
    """

    path: Path
    size_bytes: int
    used_at_s: float
    is_kin: bool


@dataclass
class Inventory:
    """What the folder holds for one rank.

    Attributes:
        entries: that can be loaded, as their files describe them.
        num_refused: entries of other models, kernels or layouts.
        num_damaged: files that were removed.
    """

    entries: list[PrefixEntry] = field(default_factory=list)
    num_refused: int = 0
    num_damaged: int = 0


class PrefixFolder:
    """One rank's view of the folder.

    Args:
        path: of it.
        identity: what its entries must have been made with.
        made_by: version of Qanat.
        rank, size: of the tensor-parallel group.
    """

    def __init__(
        self, path: Path, identity: PrefixIdentity, made_by: str, rank: int = 0, size: int = 1
    ) -> None:
        self.path = path
        self._identity, self._made_by = identity, made_by
        digest = hashlib.sha256(repr(sorted(identity.parts.items())).encode()).hexdigest()[:16]
        self._digest, self._ending = digest, f"-{digest}-{rank}of{size}"

    def prepare(self) -> str:
        """Makes the folder where there is none and removes what ended writers left; why that fails, or empty."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            return f"{error.filename or self.path}: {error.strerror or error}"
        if problem := folder_problem(self.path):
            return problem
        for name in os.listdir(self.path):
            if _OURS.fullmatch(name) and name.endswith(NEW):
                remove_unfinished(self.path / name)
        return ""

    def inventory(self) -> Inventory:
        """What can be loaded, by what stands at the end of each file; contents are compared when they are read."""
        found = Inventory()
        refused: dict[str, list[str]] = {}
        for path in sorted(self.path.glob(f"*{KEPT}")):
            if not _OURS.fullmatch(path.name) or not path.is_file():
                logger.warning("%s is no file of the prefix cache; it is left alone", path)
                found.num_refused += 1
        for file in self.files():
            if not file.is_kin or file.path.name.endswith(f"{self._ending}{KEPT}"):
                try:
                    described = self._described(file.path)
                except (EntryError, OSError) as error:
                    self._remove_damaged(file.path, error)
                    found.num_damaged += 1
                    continue
                if difference := self._identity.difference(described.identity):
                    refused.setdefault(difference, []).append(file.path.name)
                else:
                    found.entries.append(described.entry)
        for difference, names in refused.items():
            found.num_refused += len(names)
            logger.warning(
                "%d entries in %s cannot be used, as they were made with another %s: %s%s",
                *(len(names), self.path, difference, names[0], " and others" if len(names) > 1 else ""),
            )
        return found

    def files(self) -> list[KeptFile]:
        """All entries, of whatever model and rank, the longest unused first."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.path) as entries:
            for each in entries:
                match = _OURS.fullmatch(each.name)
                if match and each.name.endswith(KEPT) and each.is_file(follow_symlinks=False):
                    status = each.stat(follow_symlinks=False)
                    is_kin = match["identity"] == self._digest
                    found.append(KeptFile(Path(each.path), status.st_size, status.st_mtime, is_kin))
        return sorted(found, key=lambda file: file.used_at_s)

    def path_of(self, entry: PrefixEntry) -> Path:
        """Where this rank's share of an entry lies, if it does."""
        return self.path / f"{entry.name}{self._ending}{KEPT}"

    def write(self, entry: PrefixEntry, pieces: Iterable[memoryview]) -> bool:
        """Writes an entry's file unless it is there; False if another process is just writing it.

        Raises:
            OSError: the folder or the disk does not allow it; nothing is left behind.
        """
        final = self.path_of(entry)
        fresh = final.with_suffix(NEW)
        if final.exists():
            return True
        descriptor = claim(fresh)
        if descriptor is None:
            return False
        try:
            os.ftruncate(descriptor, 0)
            plain = msgspec.structs.replace(entry, block_ids=[], state_id=0)
            description = msgspec.to_builtins(_Description(self._identity.parts, plain))
            label = f"{entry.end} tokens"
            write_entry(
                descriptor,
                pieces,
                key=entry.tail,
                made_by=self._made_by,
                label=label,
                description=description,
            )
            give_name(descriptor, fresh, final)
        except OSError:
            drop(descriptor, fresh)
            raise
        finally:
            os.close(descriptor)
        return True

    def read(self, entry: PrefixEntry) -> Iterator[bytearray]:
        """The pieces of an entry's file, to be used only if this ends without an error.

        Raises:
            EntryError: it is not what its name says; it was removed.
            OSError: it cannot be read.
        """
        path = self.path_of(entry)
        try:
            with _opened(path) as descriptor:
                yield from read_pieces(descriptor, self._index(descriptor, entry.tail)[0])
        except EntryError as error:
            self._remove_damaged(path, error)
            raise

    def remove(self, path: Path) -> None:
        """Removes a file; harmless if it is gone."""
        with contextlib.suppress(OSError):
            path.unlink()

    def touch(self, entry: PrefixEntry) -> None:
        """Notes that an entry is still wanted."""
        with contextlib.suppress(OSError):
            os.utime(self.path_of(entry))

    def free_bytes(self) -> int:
        """Room on its disk, beyond what is left free in any case."""
        return free_bytes(self.path) - SPARE_BYTES

    def default_bytes(self) -> int:
        """Half of what would be free with the folder empty."""
        return default_bytes(self.path, sum(file.size_bytes for file in self.files()))

    def _described(self, path: Path) -> _Description:
        with _opened(path) as descriptor:
            return self._index(descriptor, path.name[:64])[1]

    def _index(self, descriptor: int, tail: str) -> tuple[Index, _Description]:
        index = read_index(descriptor, tail)
        try:
            described = msgspec.convert(index.description, _Description)
        except msgspec.ValidationError as error:
            raise EntryError(f"its description cannot be read: {error}") from None
        entry = described.entry
        if entry.tail != tail or len(index.sizes) != len(entry.keys) + entry.has_state or not index.sizes:
            raise EntryError("its description belongs to another file")
        return index, described

    def _remove_damaged(self, path: Path, error: Exception) -> None:
        logger.warning("%s is dropped: %s", path, error)
        self.remove(path)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
