"""Files that are there as a whole or not at all, even if the machine stops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

ASIDE_SUFFIX = ".aside"
"""Of a file that is being written."""


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, under another name; it gets its own once all of it is on the disk.

    Raises:
        OSError: it cannot be written.
    """
    aside = path.with_name(path.name + ASIDE_SUFFIX)
    with aside.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)


def sync_folder(folder: Path) -> None:
    """Brings the names in a folder to the disk.

    Raises:
        OSError: the disk does not take them.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
