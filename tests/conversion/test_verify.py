"""Checking a folder against its checksums."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from qanat.conversion.convert import Order, convert
from qanat.conversion.verify import CHECKSUMS_NAME, verify_folder
from qanat.core.errors import CheckpointError


@pytest.fixture
def folder(checkpoints: dict[str, Path], tmp_path: Path) -> Path:
    convert(Order(checkpoints["qwen3-tied"], tmp_path / "out", "w8a8", 1 << 16))
    return tmp_path / "out"


def test_all_is_well(folder: Path) -> None:
    read: list[int] = []
    total: list[int] = []
    found = verify_folder(folder, read.append, total.append)
    assert total == [found.size_bytes]
    assert found.faults == () and found.num_files == len(list(folder.iterdir())) - 1
    assert sum(read) == found.size_bytes
    subprocess.run(["sha256sum", "--check", "--quiet", CHECKSUMS_NAME], cwd=folder, check=True)


def test_progress_is_told_within_a_large_file(tmp_path: Path) -> None:
    data = bytes(9 << 20)
    (tmp_path / "model.safetensors").write_bytes(data)
    (tmp_path / CHECKSUMS_NAME).write_text(f"{hashlib.sha256(data).hexdigest()}  model.safetensors\n")
    read: list[int] = []
    assert verify_folder(tmp_path, read.append).faults == ()
    assert len(read) > 1 and sum(read) == len(data)


def test_each_fault_is_named(folder: Path) -> None:
    weights = sorted(folder.glob("*.safetensors"))
    data = bytearray(weights[0].read_bytes())
    data[len(data) // 2] ^= 4
    weights[0].write_bytes(data)
    weights[1].unlink()
    shutil.copy(weights[2], folder / "more.safetensors")
    (folder / "config.json").write_text("{}")
    faults = verify_folder(folder).faults
    assert len(faults) == 4
    assert any(fault.startswith(f"{weights[0].name} is not what was written") for fault in faults)
    assert f"{weights[1].name} is missing" in faults
    assert "more.safetensors is not on the list of files" in faults
    assert any(fault.startswith("config.json is not what was written") for fault in faults)


@pytest.mark.parametrize(
    "text", ["nonsense\n", "0" * 64 + "  ../up\n", ("0" * 64 + "  a\n") * 2, "0" * 63 + "  a\n"]
)
def test_lists_that_cannot_be_read(text: str, tmp_path: Path) -> None:
    (tmp_path / CHECKSUMS_NAME).write_text(text)
    with pytest.raises(CheckpointError, match="line"):
        verify_folder(tmp_path)


def test_a_folder_without_checksums(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="qanat quantize did not write it"):
        verify_folder(tmp_path)
