"""Whether a folder is still as a conversion wrote it, told from the checksums that lie in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from qanat.conversion.journal import sha256_of
from qanat.core.errors import CheckpointError

CHECKSUMS_NAME = "SHA256SUMS"
"""In the form that `sha256sum --check` reads."""

_LINE = re.compile(r"(?P<sum>[0-9a-f]{64}) [ *](?P<name>[^/\0]+)")


class Verified(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        num_files: with a checksum.
        size_bytes: of those that are there.
        faults: one sentence each; empty if all is well.
    """

    num_files: int
    size_bytes: int
    faults: tuple[str, ...]


def verify_folder(
    folder: Path,
    advance: Callable[[int], None] = lambda size_bytes: None,
    begin: Callable[[int], None] = lambda size_bytes: None,
) -> Verified:
    """Compares every file with its checksum, and looks for weight files without one.

    Args:
        folder: that `qanat quantize` wrote.
        advance: told the size of each part that has been read.
        begin: told the size of all files on the list before the first is read.

    Raises:
        CheckpointError: it has no checksums, or they cannot be read.
    """
    sums = read_checksums(folder)
    faults: list[str] = []
    size_bytes = 0
    begin(sum(path.stat().st_size for path in map(folder.joinpath, sums) if path.is_file()))
    for name, wanted in sums.items():
        path = folder / name
        if not path.is_file():
            faults.append(f"{name} is missing")
            continue
        try:
            got = sha256_of(path, advance)
        except OSError as error:
            faults.append(f"{name} cannot be read: {error.strerror}")
            continue
        if got != wanted:
            faults.append(f"{name} is not what was written: its SHA-256 is {got}, the list has {wanted}")
        size_bytes += path.stat().st_size
    strangers = sorted(path.name for path in folder.glob("*.safetensors") if path.name not in sums)
    faults += [f"{name} is not on the list of files" for name in strangers]
    return Verified(len(sums), size_bytes, tuple(faults))


def read_checksums(folder: Path) -> dict[str, str]:
    """Name of a file -> its checksum.

    Raises:
        CheckpointError: see `verify_folder`.
    """
    path = folder / CHECKSUMS_NAME
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no {CHECKSUMS_NAME}: qanat quantize did not write it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    sums: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None or match["name"] in sums:
            raise CheckpointError(f"{path}, line {number}: no checksum and name of a file, or a name twice")
        sums[match["name"]] = match["sum"]
    return sums
