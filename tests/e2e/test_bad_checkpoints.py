"""A checkpoint that cannot be served: the start fails with one clear message and no traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.support.server_process import run_command

WEIGHTS = "model.safetensors"
TENSOR = "model.language_model.norm.weight"


def without_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    del tensors[TENSOR]
    save_file(tensors, folder / WEIGHTS)


def with_a_wrong_shape(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors[TENSOR] = tensors[TENSOR][:-1].clone()
    save_file(tensors, folder / WEIGHTS)


def with_an_unknown_tensor(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["model.language_model.surprise"] = tensors[TENSOR].clone()
    save_file(tensors, folder / WEIGHTS)


def with_an_unknown_architecture(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["Mamba9ForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config))


def truncated(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])


def with_pickles_only(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def without_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def without_a_config(folder: Path) -> None:
    (folder / "config.json").unlink()


CASES: list[tuple[Callable[[Path], None], str]] = [
    (without_a_tensor, TENSOR),
    (with_a_wrong_shape, TENSOR),
    (with_an_unknown_tensor, "surprise"),
    (with_an_unknown_architecture, "Mamba9ForCausalLM"),
    (truncated, WEIGHTS),
    (with_pickles_only, "safetensors"),
    (without_a_tokenizer, "tokenizer.json"),
    (without_a_config, "config.json"),
]


@pytest.mark.parametrize(("spoil", "named"), CASES, ids=[spoil.__name__ for spoil, _ in CASES])
def test_start_fails_with_one_clear_message(
    demo_model: Path, tmp_path: Path, spoil: Callable[[Path], None], named: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(demo_model, folder)
    spoil(folder)
    result = run_command(["serve", str(folder), "--port", "0"])
    output = result.stdout + result.stderr
    assert result.returncode not in (0, -9)
    assert named in output
    assert "Traceback" not in output
    assert sum(": error: " in line for line in output.splitlines()) == 1, output
