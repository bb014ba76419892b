"""Headers of safetensors files, read without the library: eight bytes of length, JSON, then the data."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

MAX_HEADER_BYTES = 100_000_000
"""The format allows no longer header."""
LFS_START = b"version https://git-lfs"
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64,
}  # fmt: skip


class BrokenFileError(Exception):
    """A file is no whole safetensors file; the message says what is wrong with it."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a file: dtype as the format spells it ("BF16"), and shape."""

    dtype: str
    shape: tuple[int, ...]


def is_lfs_pointer(path: Path) -> bool:
    """Whether a file only says where Git LFS keeps the real one."""
    try:
        with path.open("rb") as file:
            return file.read(len(LFS_START)) == LFS_START
    except OSError:
        return False


def read_header(path: Path) -> dict[str, TensorInfo]:
    """The tensors of a file by name; the data is not read, its length is compared.

    Raises:
        BrokenFileError: it is a pointer of Git LFS, cut short, or no such file.
    """
    try:
        size_bytes = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            if is_lfs_pointer(path):
                raise BrokenFileError("is a pointer of Git LFS, not the weights")
            if len(start) < 8:
                raise BrokenFileError(f"has {size_bytes} bytes")
            (length,) = struct.unpack("<Q", start)
            if length > min(MAX_HEADER_BYTES, size_bytes - 8):
                raise BrokenFileError("is cut short inside its header, or no safetensors file")
            header = json.loads(file.read(length))
    except OSError as error:
        raise BrokenFileError(f"cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise BrokenFileError("has a header that is no JSON") from None
    tensors, end = _tensors(header)
    expected = 8 + length + end
    if size_bytes < expected:
        raise BrokenFileError(f"is cut short: {size_bytes} of {expected} bytes")
    if size_bytes > expected:
        raise BrokenFileError(f"is longer than its header says: {size_bytes} instead of {expected} bytes")
    return tensors


def _tensors(header: object) -> tuple[dict[str, TensorInfo], int]:
    """Tensors by name, and where the last one ends.

    Raises:
        BrokenFileError: an entry is not as the format says.
    """
    if not isinstance(header, dict):
        raise BrokenFileError("has a header that is no object")
    tensors: dict[str, TensorInfo] = {}
    end = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape = str(entry["dtype"]), tuple(int(size) for size in entry["shape"])
            first, last = (int(offset) for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise BrokenFileError(f"has no dtype, shape or place for {name}") from None
        size_bits = DTYPE_BITS.get(dtype, 0)
        for size in shape:
            size_bits *= size
        if first < 0 or last < first or (dtype in DTYPE_BITS and (last - first) * 8 != size_bits):
            raise BrokenFileError(f"gives {name} {last - first} bytes, its shape needs {size_bits // 8}")
        tensors[name] = TensorInfo(dtype, shape)
        end = max(end, last)
    return tensors, end
