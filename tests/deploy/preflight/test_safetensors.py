from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.deploy.preflight.safetensors import BrokenFileError, TensorInfo, read_header
from tests.deploy.preflight.folders import shard

WHOLE = shard({"a.weight": ("BF16", (2, 3)), "b": ("I8", (4,)), "scalar": ("F32", ())})


def test_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(WHOLE)
    tensors = read_header(tmp_path / "a")
    assert tensors["a.weight"] == TensorInfo("BF16", (2, 3)) and tensors["scalar"] == TensorInfo("F32", ())


def test_a_file_that_the_library_writes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    library.save_file({"w": torch.zeros(3, 5, dtype=torch.bfloat16)}, str(tmp_path / "a"))
    assert read_header(tmp_path / "a") == {"w": TensorInfo("BF16", (3, 5))}


@pytest.mark.parametrize("size", range(len(WHOLE)))
def test_a_file_cut_anywhere_is_broken(tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(WHOLE[:size])
    with pytest.raises(BrokenFileError):
        read_header(tmp_path / "a")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "Git LFS"),
        (WHOLE + b"\0", "longer"),
        (struct.pack("<Q", 2**40), "cut short"),
        (struct.pack("<Q", 4) + b"nope", "no JSON"),
        (struct.pack("<Q", 2) + b"[]", "no object"),
        (struct.pack("<Q", 10) + b'{"a": {} }', "no dtype"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(BrokenFileError, match=reason):
        read_header(tmp_path / "a")


def test_a_shape_that_does_not_fit_its_bytes(tmp_path: Path) -> None:
    text = json.dumps({"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "a").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    with pytest.raises(BrokenFileError, match="its shape needs 8"):
        read_header(tmp_path / "a")


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "a"
    path.write_bytes(content)
    try:
        read_header(path)
    except BrokenFileError:
        pass


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError, match="cannot be read"):
        read_header(tmp_path / "none")
