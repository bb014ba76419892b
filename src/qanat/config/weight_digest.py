"""Whether two processes have the same weights, told from a little of the files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

NUM_SAMPLES = 16
SAMPLE_BYTES = 4096
"""Of each weight file so many places are compared, and so much of each: two trainings of one shape differ in them."""
LENGTH_BYTES = 8
"""Size of the little-endian length of the header at the start of a safetensors file."""
MAX_HEADER_BYTES = 100_000_000
DIGEST_CHARACTERS = 16


def weight_digest(folder: Path) -> str:
    """Start of the SHA-256 of names, sizes, headers and samples of the numbers of all weight files.

    Raises:
        OSError: a file cannot be read.
    """
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        total.update(path.name.encode())
        for piece in _pieces(path):
            total.update(piece)
    return total.hexdigest()[:DIGEST_CHARACTERS]


def _pieces(path: Path) -> Iterator[bytes]:
    """Size and header of a weight file, and samples of what follows."""
    with open(path, "rb") as file:
        size_bytes = file.seek(0, os.SEEK_END)
        yield size_bytes.to_bytes(LENGTH_BYTES, "little")
        file.seek(0)
        length = file.read(LENGTH_BYTES)
        yield length
        yield file.read(min(int.from_bytes(length, "little"), MAX_HEADER_BYTES))
        start = file.tell()
        for i in range(NUM_SAMPLES):
            file.seek(start + (size_bytes - start) * i // NUM_SAMPLES)
            yield file.read(SAMPLE_BYTES)
