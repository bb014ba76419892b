"""Where a conversion is written: refused, made ready, finished."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from qanat.config.weight_digest import weight_digest
from qanat.conversion.journal import JOURNAL_NAME, LOCK_NAME, sha256_of, write_whole
from qanat.conversion.verify import CHECKSUMS_NAME
from qanat.core.errors import CapacityError, ConfigError, ConversionError
from qanat.core.whole_file import sync_folder

PARTIAL_SUFFIX = ".partial"
SPARE_BYTES = 64 << 20
"""Room that stays free beside what is written."""

COPIED = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "LICENSE*", "NOTICE*", "README*")
"""Files of the source that go along; indices of its weight files do not."""
NOT_COPIED = ("*.index.json",)


def aside_of(out: Path) -> Path:
    """The folder in which the work is done, beside the one that it becomes."""
    return out.with_name(out.name + PARTIAL_SUFFIX)


def check_target(source: Path, out: Path) -> None:
    """Refuses a folder that must not be written.

    Raises:
        ConfigError: it holds something, is no folder, or lies in the source.
    """
    if out.resolve() == source.resolve() or source.resolve() in out.resolve().parents:
        raise ConfigError(f"OUT {out} lies in the checkpoint that is read; write to a folder beside it.")
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ConfigError(f"OUT {out} is there and is no folder.")
    if out.is_dir() and any(out.iterdir()):
        raise ConfigError(
            f"OUT {out} is there and holds something; write to a new folder, or check this one with "
            f"qanat quantize --verify {out}."
        )


def check_room(folder: Path, needed_bytes: int) -> None:
    """Refuses to begin what the disk cannot hold.

    Args:
        folder: on the disk; need not be there yet.
        needed_bytes: still to be written.

    Raises:
        CapacityError: with what is needed and what is free.
    """
    there = next(parent for parent in (folder, *folder.resolve().parents) if parent.is_dir())
    free_bytes = shutil.disk_usage(there).free
    if free_bytes < needed_bytes + SPARE_BYTES:
        raise CapacityError(
            f"{folder} needs {needed_bytes / 2**30:.2f} GiB and the disk has {free_bytes / 2**30:.2f} GiB free; free "
            "some, or write to another disk."
        )


@contextmanager
def reading(source: Path) -> Iterator[None]:
    """Within it the source is read: what fails there is not the folder that is written.

    Raises:
        ConversionError: instead of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise ConversionError(
            f"{error.filename or source} cannot be read: {error.strerror or error}. Finished files are kept: once that "
            "is mended, the same command goes on from there."
        ) from error


def source_digest(folder: Path) -> str:
    """Tells whether the source is still the same: names, sizes, times, headers and samples of its weight files.

    Raises:
        ConversionError: one cannot be read.
    """
    with reading(folder):
        return _digest_of(folder)


def _digest_of(folder: Path) -> str:
    digest = hashlib.sha256(weight_digest(folder).encode())
    for path in [folder / "config.json", *sorted(folder.glob("*.safetensors"))]:
        about = path.stat()
        digest.update(f"{path.name} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def files_beside(source: Path) -> list[Path]:
    """Files of the source that are copied."""
    found = {path for pattern in COPIED for path in source.glob(pattern) if path.is_file()}
    return sorted(path for path in found if not any(path.match(pattern) for pattern in NOT_COPIED))


def finish(
    folder: Path, out: Path, source: Path, made: Mapping[str, bytes], checksums: Mapping[str, str]
) -> None:
    """Adds what is small, then the checksums of all, then gives the folder its name.

    Args:
        folder: with all weight files.
        out: the name.
        source: whose files are copied.
        made: contents of the files that are made, by name.
        checksums: of the weight files, by name.

    Raises:
        ConversionError: the name has been taken meanwhile, or a file of the source cannot be read.
    """
    sums = dict(checksums)
    with reading(source):
        contents = {path.name: path.read_bytes() for path in files_beside(source)} | dict(made)
    for name, data in contents.items():
        write_whole(folder / name, data)
        sums[name] = sha256_of(folder / name)
    _remove(
        folder,
        (each for each in os.listdir(folder) if each not in sums and each not in (JOURNAL_NAME, LOCK_NAME)),
    )
    lines = [f"{sums[name]}  {name}\n" for name in sorted(sums)]
    write_whole(folder / CHECKSUMS_NAME, "".join(lines).encode())
    sync_folder(folder)
    try:
        folder.rename(out)
    except OSError as error:
        raise ConversionError(f"{folder} is complete, but cannot become {out}: {error.strerror}") from None
    _remove(out, (JOURNAL_NAME, LOCK_NAME))
    sync_folder(out.parent)


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in list(names):
        (folder / name).unlink(missing_ok=True)
