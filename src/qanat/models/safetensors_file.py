"""Reads one `.safetensors` file by mapping it: checked first, so that a broken file is an error and not a crash.

Format: 8 bytes little-endian header length, a JSON header name -> {dtype, shape, data_offsets}, then the data.
"""

from __future__ import annotations

import json
import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qanat.core.errors import CheckpointError
from qanat.quant.parameter import Shard, TensorHeader

MAX_HEADER_BYTES = 100 * 2**20
"""Longest header that is read, the bound of the format's own library."""

FLOAT_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
"""Types that a float parameter can be filled from."""

DTYPES = {
    **FLOAT_DTYPES, "I8": torch.int8, "U8": torch.uint8, "I32": torch.int32, "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.uint8,
}  # fmt: skip
"""Types that can be read. Exponents (E8M0) are read as the bytes that they are."""

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2,
    "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
"""Bytes of one value of each type that the format has."""


@dataclass(frozen=True)
class TensorEntry(TensorHeader):
    """One tensor of a file.

    Attributes:
        start, stop: bytes from the beginning of the file.
    """

    start: int
    stop: int


class SafetensorsFile:
    """A checked file; tensors are views of the mapping and stay valid as long as they are held.

    Args:
        path: the file.

    Attributes:
        entries: the tensors by name.
        read_bytes: of all tensors and regions that were asked for.

    Raises:
        CheckpointError: not this format, truncated, or inconsistent.
    """

    def __init__(self, path: Path) -> None:
        """Reads and checks the header; no data is touched."""
        self.path = path
        self._size_bytes, header, data_start = _read_header(path)
        self.entries = _check_entries(path, header, data_start, self._size_bytes)
        self._mapping: mmap.mmap | None = None
        self.read_bytes = 0

    def tensor(self, name: str, shard: Shard | None = None) -> tuple[Tensor, bool]:
        """(a contiguous tensor of one of `DTYPES`, True if it is the mapped memory itself).

        Writing to it changes neither the file nor other mappings. A tensor that is not aligned to its item
        size is copied, and so is a region that is not one piece of the file. Only the region is touched.

        Args:
            name: of the tensor.
            shard: the region that is wanted; None for all of it.
        """
        entry = self.entries[name]
        dtype = DTYPES[entry.dtype]
        raw = self._bytes(entry)
        is_aligned = entry.start % dtype.itemsize == 0
        if shard is None:
            self.read_bytes += raw.numel()
            return (raw if is_aligned else raw.clone()).view(dtype).view(entry.shape), is_aligned
        # Axes up to the one that is cut stay; what lies below it is bytes, so that nothing need be aligned to cut it.
        outer = entry.shape[: shard.axis + 1]
        region = shard.of(raw.view(*outer, -1))
        self.read_bytes += region.numel()
        own_shape = (*outer[:-1], shard.length, *entry.shape[shard.axis + 1 :])
        is_mapped = is_aligned and len(shard.pieces) == 1 and region.is_contiguous()
        if not is_mapped:
            region = region.clone(memory_format=torch.contiguous_format)
        return region.reshape(-1).view(dtype).view(own_shape), is_mapped

    def release(self, name: str) -> None:
        """Gives the memory back that reading the tensor took; a part that is read again comes from the file again."""
        entry = self.entries[name]
        first, last = -(-entry.start // mmap.PAGESIZE), entry.stop // mmap.PAGESIZE
        if self._mapping is not None and last > first:
            self._mapping.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)

    def _bytes(self, entry: TensorEntry) -> Tensor:
        if entry.start == entry.stop:
            return torch.empty(0, dtype=torch.uint8)
        if self._mapping is None:
            with self.path.open("rb") as file:
                self._mapping = mmap.mmap(file.fileno(), self._size_bytes, access=mmap.ACCESS_COPY)
        return torch.frombuffer(
            self._mapping, dtype=torch.uint8, count=entry.stop - entry.start, offset=entry.start
        )


def _read_header(path: Path) -> tuple[int, dict[str, Any], int]:
    """(file size, header, where the data begins)."""
    try:
        size_bytes = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size_bytes < 8 or length > min(size_bytes - 8, MAX_HEADER_BYTES):
                raise CheckpointError(
                    f"{path} is truncated or not a safetensors file: its header should be {length} bytes long, "
                    f"the file is {size_bytes}"
                )
            header = json.loads(file.read(length), object_pairs_hook=_unique(path))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not a safetensors file: its header is not JSON ({error})"
        ) from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} is not a safetensors file: its header is not an object")
    header.pop("__metadata__", None)
    return size_bytes, header, 8 + length


def _unique(path: Path) -> Any:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) != len(pairs):
            names = [key for key, _ in pairs]
            twice = next(key for key in names if names.count(key) > 1)
            raise CheckpointError(f"{path} lists tensor {twice!r} twice")
        return values

    return build


def _check_entries(
    path: Path, header: dict[str, Any], data_start: int, size_bytes: int
) -> dict[str, TensorEntry]:
    entries: dict[str, TensorEntry] = {}
    for name, raw in header.items():
        try:
            dtype, shape = str(raw["dtype"]), tuple(int(size) for size in raw["shape"])
            begin, end = (int(offset) for offset in raw["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path}: the entry of tensor {name!r} is malformed") from error
        if dtype not in ITEM_BYTES:
            raise CheckpointError(f"{path}: tensor {name!r} has the unknown type {dtype!r}")
        wanted = math.prod(shape) * ITEM_BYTES[dtype]
        if min(begin, *shape, 0) < 0 or end - begin != wanted:
            raise CheckpointError(
                f"{path}: tensor {name!r} of type {dtype} and shape {list(shape)} needs {wanted} bytes, "
                f"its entry gives bytes {begin} to {end}"
            )
        entries[name] = TensorEntry(dtype, shape, data_start + begin, data_start + end)
    position = data_start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != position:
            raise CheckpointError(f"{path}: the data of tensor {name!r} overlaps others or leaves a gap")
        position = entry.stop
    if position != size_bytes:
        kind = "truncated" if position > size_bytes else "damaged"
        raise CheckpointError(
            f"{path} is {kind}: its header describes {position} bytes, the file has {size_bytes}; "
            "download or copy it again"
        )
    return entries
