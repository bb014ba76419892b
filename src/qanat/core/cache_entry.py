"""One file of a cache on disk, of packed weights or of prefixes: pieces of bytes, then an index of them, then a footer.

    piece, padding, piece, padding, ...   each starts at a multiple of `ALIGNMENT`
    index                                 JSON, see `Index`
    footer                                64 bytes: magic, place and length of the index, its SHA-256

The footer says within microseconds whether the file is whole and its index right; the SHA-256 of the pieces stands in
the index and is compared on demand (`check_pieces`), as that reads everything. A file is written once, under another
name, and renamed when it is on the disk; nothing ever changes it afterwards.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

ALIGNMENT = 4096
"""Pages are mapped whole, so a piece that starts on one shares it with no other."""
MAGIC = b"qanatpk1"
FOOTER = struct.Struct("<8sQQ32s8x")
CHUNK_BYTES = 8 * 2**20
MAX_INDEX_BYTES = 256 * 2**20

Progress = Callable[[int], None]
"""Called with the number of bytes that have just been dealt with."""


class Index(msgspec.Struct, frozen=True):
    """What an entry holds.

    Attributes:
        key: the entry's own; it is the name of the file, too.
        made_by: version of Qanat.
        label: what it is, for people.
        sizes: of the pieces, in their order.
        sha256: of all pieces one after the other, padding left out.
        description: whatever the writer needs to make sense of the pieces.
    """

    key: str
    made_by: str
    label: str
    sizes: list[int]
    sha256: str
    description: Any

    def starts(self) -> list[int]:
        """Where each piece begins in the file."""
        places, at = [], 0
        for size in self.sizes:
            places.append(at)
            at = _aligned(at + size)
        return places


class EntryError(Exception):
    """An entry that is truncated, damaged or not what its name says."""


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def entry_bytes(sizes: Iterable[int]) -> int:
    """About what an entry with pieces of these sizes takes, its index left out."""
    return sum(map(_aligned, sizes))


def write_entry(
    descriptor: int, pieces: Iterable[memoryview], *, key: str, made_by: str, label: str, description: Any
) -> int:
    """Writes an entry to an open, empty file and has the system bring it to the disk; returns its size in bytes.

    Raises:
        OSError: no room, no rights, or a broken disk.
    """
    digest = hashlib.sha256()
    sizes: list[int] = []
    position = 0
    for piece in pieces:
        _write(descriptor, b"\0" * (_aligned(position) - position))
        position = _aligned(position)
        for chunk in _chunks(piece):
            _write(descriptor, chunk)
            digest.update(chunk)
        sizes.append(piece.nbytes)
        position += piece.nbytes
    index = msgspec.json.encode(Index(key, made_by, label, sizes, digest.hexdigest(), description))
    _write(descriptor, index)
    _write(descriptor, FOOTER.pack(MAGIC, position, len(index), hashlib.sha256(index).digest()))
    os.fsync(descriptor)
    return position + len(index) + FOOTER.size


def read_index(descriptor: int, key: str) -> Index:
    """The index of an entry, after what can be checked without reading the pieces.

    Args:
        descriptor: of the open file.
        key: that it must have.

    Raises:
        EntryError: the file is no whole entry with this key.
        OSError: it cannot be read.
    """
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes < FOOTER.size:
        raise EntryError("it is too short")
    magic, start, length, sha256 = FOOTER.unpack(os.pread(descriptor, FOOTER.size, size_bytes - FOOTER.size))
    if magic != MAGIC or length > MAX_INDEX_BYTES or start + length + FOOTER.size != size_bytes:
        raise EntryError("its end is missing or is no footer")
    raw = os.pread(descriptor, length, start)
    if hashlib.sha256(raw).digest() != sha256:
        raise EntryError("its index is damaged")
    try:
        index = msgspec.json.decode(raw, type=Index)
    except msgspec.DecodeError as error:
        raise EntryError(f"its index cannot be read: {error}") from None
    ends = [at + size for at, size in zip(index.starts(), index.sizes, strict=True)]
    if index.key != key or any(size < 0 for size in index.sizes) or max(ends, default=0) != start:
        raise EntryError("its index belongs to another file")
    return index


def check_pieces(descriptor: int, index: Index, progress: Progress | None = None) -> None:
    """Reads all pieces and compares their SHA-256.

    Raises:
        EntryError: they are not what was written.
        OSError: they cannot be read.
    """
    digest = hashlib.sha256()
    for start, size in zip(index.starts(), index.sizes, strict=True):
        for at in range(start, start + size, CHUNK_BYTES):
            chunk = os.pread(descriptor, min(CHUNK_BYTES, start + size - at), at)
            digest.update(chunk)
            if progress is not None:
                progress(len(chunk))
    if digest.hexdigest() != index.sha256:
        raise EntryError("its weights are damaged")


def read_pieces(descriptor: int, index: Index) -> Iterator[bytearray]:
    """Reads all pieces, each as a whole; what was read is to be used only if this ends without an error.

    Raises:
        EntryError: they are not what was written; known after the last one.
        OSError: they cannot be read.
    """
    digest = hashlib.sha256()
    for start, size in zip(index.starts(), index.sizes, strict=True):
        piece = bytearray(size)
        rest, at = memoryview(piece), start
        while rest.nbytes and (num_read := os.preadv(descriptor, [rest], at)):
            rest, at = rest[num_read:], at + num_read
        digest.update(piece)
        yield piece
    if digest.hexdigest() != index.sha256:
        raise EntryError("its content is damaged")


def _chunks(piece: memoryview) -> Iterator[memoryview]:
    flat = piece.cast("B")
    for start in range(0, flat.nbytes, CHUNK_BYTES):
        yield flat[start : start + CHUNK_BYTES]


def _write(descriptor: int, data: bytes | memoryview) -> None:
    """All of it: one call may write less, and 2 GiB at most."""
    rest = memoryview(data)
    while rest.nbytes:
        rest = rest[os.write(descriptor, rest) :]
