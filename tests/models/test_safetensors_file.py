"""The mapped reader: equal to the format's own library on good files, an error and never a crash on bad ones."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from qanat.core.errors import CheckpointError
from qanat.models.safetensors_file import SafetensorsFile


def write(path: Path, header: object, data: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_reads_what_the_library_writes(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {
        "a": torch.randn(3, 5).to(dtype),
        "b": torch.randn(2, 1, 4).to(dtype),
        "empty": torch.zeros(0, 4, dtype=dtype),
        "one": torch.randn(()).to(dtype),
    }
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "pt"})
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert file.entries.keys() == tensors.keys()
    for name, expected in tensors.items():
        tensor, is_mapped = file.tensor(name)
        assert is_mapped
        assert tensor.dtype == dtype
        assert torch.equal(tensor, expected)


def test_data_off_the_item_grid_is_copied(tmp_path: Path) -> None:
    data = struct.pack("<2f", 1.5, -2.0)
    for padding in range(4):
        header = json.dumps({"x": entry([2], 0, 8)}).encode() + b" " * padding
        path = write(tmp_path / f"{padding}.safetensors", header, data)
        tensor, is_mapped = SafetensorsFile(path).tensor("x")
        assert tensor.tolist() == [1.5, -2.0]
        assert is_mapped == ((8 + len(header)) % 4 == 0)


def test_tensors_outlive_the_reader_and_the_name(tmp_path: Path) -> None:
    save_file({"x": torch.arange(6.0)}, tmp_path / "x.safetensors")
    tensor, _ = SafetensorsFile(tmp_path / "x.safetensors").tensor("x")
    (tmp_path / "x.safetensors").unlink()
    assert tensor.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        ({"x": entry([2], 0, 8)}, b"\0" * 7, "truncated"),
        ({"x": entry([2], 0, 8)}, b"\0" * 9, "damaged"),
        ({"x": entry([3], 0, 8)}, b"\0" * 8, "needs 12 bytes"),
        ({"x": entry([2], 0, 8), "y": entry([2], 4, 12)}, b"\0" * 12, "overlaps"),
        ({"x": entry([1], 0, 4), "y": entry([1], 8, 12)}, b"\0" * 12, "gap"),
        ({"x": entry([-2, -1], 0, 8)}, b"\0" * 8, "shape"),
        ({"x": entry([2], 8, 0)}, b"\0" * 8, "needs 8 bytes"),
        ({"x": entry([2], 0, 8, "F33")}, b"\0" * 8, "unknown type 'F33'"),
        ({"x": {"dtype": "F32", "shape": [2]}}, b"\0" * 8, "malformed"),
        ({"x": [1, 2]}, b"\0" * 8, "malformed"),
        ([1, 2], b"", "not an object"),
        (b"{nonsense", b"", "not JSON"),
        (b"\xff\xfe", b"", "not JSON"),
        (b"[" * 100_000, b"", "not JSON"),
        (b'{"x": {}, "x": {}}', b"", "'x' twice"),
    ],
)
def test_bad_files(tmp_path: Path, header: object, data: bytes, words: str) -> None:
    path = write(tmp_path / "bad.safetensors", header, data)
    with pytest.raises(CheckpointError, match=words) as caught:
        SafetensorsFile(path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 7, struct.pack("<Q", 2**63) + b"{}", b"<!DOCTYPE html><html>"]
)
def test_files_that_are_something_else(tmp_path: Path, content: bytes) -> None:
    """Among them a hub's error page saved under the weight's name."""
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        SafetensorsFile(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        SafetensorsFile(tmp_path / "none.safetensors")


@settings(max_examples=200, deadline=None)
@given(
    cut=st.integers(0, 10_000),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), max_size=3),
)
def test_any_damage_is_an_error_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flips: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.safetensors"
    save_file({"a": torch.ones(5, 3), "b": torch.zeros(7, dtype=torch.bfloat16)}, path)
    content = bytearray(path.read_bytes())
    for place, mask in flips:
        content[place % len(content)] ^= mask
    path.write_bytes(content[: cut % (len(content) + 1)] if cut % 2 else content)
    try:
        file = SafetensorsFile(path)
    except CheckpointError:
        return
    for name, found in file.entries.items():
        if found.dtype in ("F32", "BF16", "F16"):
            assert tuple(file.tensor(name)[0].shape) == found.shape
