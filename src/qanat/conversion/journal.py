"""What an interrupted conversion has finished: kept beside its files, so that the next run goes on from there."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import msgspec

from qanat.conversion.shard_writer import WrittenShard
from qanat.core.errors import ConfigError, ConversionError
from qanat.core.whole_file import ASIDE_SUFFIX, whole_file

JOURNAL_NAME = "conversion.json"
LOCK_NAME = "conversion.lock"
VERSION = 1
"""Of the conversion: another one must not go on with what this one has begun."""
_BLOCK_BYTES = 1 << 22


class Inputs(msgspec.Struct, frozen=True):
    """Everything that the result depends on.

    Attributes:
        version: see `VERSION`.
        scheme: its name.
        source: digest of names, sizes, times and headers of the source's files.
        calibration: digest of the calibration; empty without.
        max_shard_bytes: largest weight file.
    """

    version: int
    scheme: str
    source: str
    calibration: str
    max_shard_bytes: int


class Progress(msgspec.Struct, frozen=True):
    """The journal's contents.

    Attributes:
        inputs: of the conversion.
        shards: that are finished.
    """

    inputs: Inputs
    shards: tuple[WrittenShard, ...] = ()


class Workplace:
    """The folder in which a conversion is written, held by one process at a time.

    Args:
        folder: made if it is not there.
        inputs: of this conversion.

    Raises:
        ConversionError: another process is at work in it, or it cannot be made or locked.
        ConfigError: it holds the work of another conversion.
    """

    def __init__(self, folder: Path, inputs: Inputs) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConversionError(f"{folder} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise lock_failure(folder, error) from None
        try:
            self._progress = self._read(inputs)
        except ConfigError:
            os.close(self._lock)
            raise

    @property
    def finished(self) -> tuple[WrittenShard, ...]:
        """Weight files that an earlier run finished, or this one."""
        return self._progress.shards

    def record(self, shards: tuple[WrittenShard, ...]) -> None:
        """These weight files are finished now, and no others."""
        self._progress = Progress(self._progress.inputs, shards)
        write_whole(self.folder / JOURNAL_NAME, msgspec.json.encode(self._progress))

    def clear_unfinished(self) -> None:
        """Removes what an ended process was in the middle of writing: it takes room, and is written anew anyway."""
        for path in self.folder.glob(f"*{ASIDE_SUFFIX}"):
            path.unlink(missing_ok=True)

    def __enter__(self) -> Workplace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)

    def _read(self, inputs: Inputs) -> Progress:
        path = self.folder / JOURNAL_NAME
        if not path.is_file():
            own = (LOCK_NAME, f"{JOURNAL_NAME}{ASIDE_SUFFIX}")  # the latter if the first record was cut short
            others = [each.name for each in self.folder.iterdir() if each.name not in own]
            if others:
                raise ConfigError(
                    f"{self.folder} is there and holds {others[0]}, but no conversion of Qanat; remove it or write to "
                    "another folder."
                )
            return Progress(inputs)
        try:
            progress = msgspec.json.decode(path.read_bytes(), type=Progress)
        except msgspec.MsgspecError:
            raise ConfigError(f"{path} is damaged; remove {self.folder} to begin anew.") from None
        if progress.inputs != inputs:
            raise ConfigError(
                f"{self.folder} holds an interrupted conversion of another source or with other settings (scheme "
                f"{progress.inputs.scheme}); remove it to begin anew, or write to another folder."
            )
        return progress


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file so that it is there as a whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    with whole_file(path) as file:
        file.write(data)


def lock_failure(folder: Path, error: OSError) -> ConversionError:
    """What to say when a folder's lock cannot be had: somebody has it, or the disk has no locks."""
    if isinstance(error, BlockingIOError):
        return ConversionError(f"another process is writing {folder}; wait for it, or stop it")
    return ConversionError(
        f"{folder} cannot be locked: {error.strerror or error}. Write to a disk that has locks, so that no other "
        "process writes the same folder."
    )


def sha256_of(path: Path, advance: Callable[[int], None] = lambda size_bytes: None) -> str:
    """Checksum of a file in hexadecimal digits.

    Args:
        path: of the file.
        advance: told the size of each part that has been read.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()
