"""scripts/setup never fetches a CUDA build of torch unasked: what it says about pip's reports."""

from __future__ import annotations

import json
from pathlib import Path

from tests.house.checkout import load_script

torch_choice = load_script("torch_choice")


def report(folder: Path, *names: str, size_bytes: int = 1_500_000_000, is_remote: bool = False) -> Path:
    """A report as `pip install --dry-run --report` writes it; its files are sparse, so they cost nothing."""
    items = []
    for name in names:
        wheel = folder / f"{name}.whl"
        with wheel.open("wb") as file:
            file.truncate(size_bytes)
        url = f"http://127.0.0.1:9/{name}.whl" if is_remote else wheel.as_uri()
        items.append({"metadata": {"name": name, "version": "1"}, "download_info": {"url": url}})
    path = folder / "report.json"
    path.write_text(json.dumps({"version": "1", "install": items}))
    return path


def test_cpu_build_is_accepted(tmp_path: Path) -> None:
    path = report(tmp_path, "torch", "filelock", "numpy")
    assert torch_choice.examine(path) == []
    assert torch_choice.main(["examine", str(path)]) == 0


def test_cuda_build_is_refused_with_its_size_and_two_ways_on(tmp_path: Path, capsys) -> None:
    path = report(tmp_path, "torch", "nvidia-cublas", "filelock")
    assert torch_choice.main(["examine", str(path)]) == 1
    message = capsys.readouterr().err
    assert "3.0 GB to fetch in 2 files" in message
    assert "PIP_EXTRA_INDEX_URL" in message
    assert "--allow-gpu-torch" in message


def test_size_falls_back_to_a_typical_one_if_the_server_does_not_tell(tmp_path: Path) -> None:
    path = report(tmp_path, "torch", "nvidia-cublas", size_bytes=0, is_remote=True)
    assert "about 3 GB" in torch_choice.examine(path)[0]


def test_installed_torch_is_recognised() -> None:
    import torch

    assert torch_choice.installed_version() == torch.__version__
