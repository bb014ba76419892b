"""The digest tells apart what has other names, another shape, or only other numbers."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from qanat.config.weight_digest import weight_digest


def saved(folder: Path, scale: float, name: str = "a.safetensors", size: int = 100_000) -> Path:
    folder.mkdir()
    save_file({"weight": torch.arange(size, dtype=torch.float32) * scale}, folder / name)
    return folder


def test_a_copy_is_the_same_and_whatever_else_is_not(tmp_path: Path) -> None:
    own = weight_digest(saved(tmp_path / "own", 1.0))
    assert weight_digest(saved(tmp_path / "copy", 1.0)) == own
    others = [
        saved(tmp_path / "trained", 2.0),
        saved(tmp_path / "renamed", 1.0, "b.safetensors"),
        saved(tmp_path / "longer", 1.0, size=100_001),
    ]
    assert own not in {weight_digest(other) for other in others}
