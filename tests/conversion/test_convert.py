"""Quantised checkpoints: what is in them, and what happens when the work is interrupted or must not be done."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from qanat.conversion import target
from qanat.conversion.convert import DESCRIPTION_NAME, REPORT_NAME, Converted, Order, Watcher, convert
from qanat.conversion.error_report import by_part
from qanat.conversion.journal import LOCK_NAME, lock_failure
from qanat.conversion.target import aside_of, check_room
from qanat.conversion.verify import verify_folder
from qanat.core.errors import CapacityError, CheckpointError, ConfigError, ConversionError
from qanat.models.checkpoint import open_checkpoint
from qanat.quant.rounding import quantise_int4, quantise_int8

SMALL = 1 << 16
"""Bytes of a weight file, so that there are several."""


def contents(folder: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor
        for path in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def unpacked(weight: torch.Tensor) -> torch.Tensor:
    """Two rows in a byte, each signed, as the format's description has it."""
    low, high = (weight << 4) >> 4, weight >> 4
    return torch.stack([low, high], 1).flatten(0, 1)


class Stop(Exception):
    """Ends a conversion in the middle."""


def interrupted(order: Order, after_bytes: int) -> None:
    seen = 0

    def advance(size_bytes: int) -> None:
        nonlocal seen
        seen += size_bytes
        if seen >= after_bytes:
            raise Stop

    with pytest.raises(Stop):
        convert(order, Watcher(advance=advance))


@pytest.mark.parametrize("scheme", ["w8a8", "w4a8"])
@pytest.mark.parametrize("name", ["qwen3-tied", "qwen3_5_moe-fused", "qwen3_5_moe-vision_per_expert"])
def test_every_tensor_is_rounded_or_copied(
    name: str, scheme: str, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    done = convert(Order(checkpoints[name], tmp_path / "out", scheme, SMALL))
    plain, made = contents(checkpoints[name]), contents(tmp_path / "out")
    kinds = json.loads((tmp_path / "out" / DESCRIPTION_NAME).read_text())
    assert {each for each in kinds if "." in each} == set(made)
    assert kinds["group_size"] == (32 if scheme == "w4a8" else 0)
    assert open_checkpoint(tmp_path / "out").owner.keys() == made.keys()
    wanted = expected(plain)
    num_matrices = 0
    for tensor, values in wanted.items():
        kind = kinds[tensor]
        if kind == "FLOAT":
            assert torch.equal(made.pop(tensor), values), tensor
            continue
        num_matrices += 1
        matrix = tensor.removesuffix(".weight")
        weight, scale = made.pop(tensor), made.pop(f"{matrix}.weight_scale")
        assert not made.pop(f"{matrix}.weight_offset").any()
        if kind == "W8A8_DYNAMIC":
            eight = quantise_int8(values)
            assert torch.equal(weight, eight.values) and torch.equal(scale.squeeze(1), eight.scales), tensor
        else:
            four = quantise_int4(values)
            second = made.pop(f"{matrix}.weight_scale_second")
            assert torch.equal(unpacked(weight), four.values) and torch.equal(second * scale, four.scales), (
                tensor
            )
    assert not made, "nothing else is written"
    assert done.num_files > 1 and num_matrices == len(done.errors)
    assert json.loads((tmp_path / "out" / "config.json").read_text()).get("quantization_config") is None
    assert not verify_folder(tmp_path / "out").faults


def expected(plain: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The plain tensors under the names of the output: experts one by one."""
    found = {}
    for name, tensor in plain.items():
        owner, _, stack = name.rpartition(".")
        if stack == "gate_up_proj":
            for expert, both in enumerate(tensor):
                gate, up = both.chunk(2)
                found[f"{owner}.{expert}.gate_proj.weight"], found[f"{owner}.{expert}.up_proj.weight"] = (
                    gate,
                    up,
                )
        elif stack == "down_proj":
            found |= {f"{owner}.{expert}.down_proj.weight": each for expert, each in enumerate(tensor)}
        elif name != "lm_head.weight" or "model.embed_tokens.weight" not in plain or not _is_tied(plain):
            found[name] = tensor
    return found


def _is_tied(plain: dict[str, torch.Tensor]) -> bool:
    return torch.equal(plain["lm_head.weight"], plain["model.embed_tokens.weight"])


def test_kinds_of_a_mixed_model(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    convert(Order(checkpoints["qwen3_5_moe-vision_per_expert"], tmp_path / "out", "w4a8"))
    kinds: dict[str, Any] = json.loads((tmp_path / "out" / DESCRIPTION_NAME).read_text())
    start = "model.language_model.layers.0"
    assert kinds["lm_head.weight"] == kinds["model.language_model.embed_tokens.weight"] == "W8A8_DYNAMIC"
    assert kinds[f"{start}.linear_attn.in_proj_qkv.weight_scale_second"] == "W4A8_DYNAMIC"
    assert kinds[f"{start}.mlp.experts.7.up_proj.weight"] == "W4A8_DYNAMIC"
    assert kinds[f"{start}.mlp.experts.7.down_proj.weight"] == "W8A8_DYNAMIC", "48 inputs are no whole groups"
    assert kinds[f"{start}.mlp.gate.weight"] == kinds[f"{start}.linear_attn.in_proj_a.weight"] == "FLOAT"
    assert kinds["mtp.fc.weight"] == "FLOAT"
    assert all(kind == "FLOAT" for name, kind in kinds.items() if "visual" in name)


def test_the_report_has_every_matrix(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    done = convert(Order(checkpoints["qwen3-tied"], tmp_path / "out", "w8a8"))
    report = json.loads((tmp_path / "out" / REPORT_NAME).read_text())
    assert report["scheme"] == "w8a8" and report["is_calibrated"] is False
    assert len(report["matrices"]) == len(done.errors) == 4 * 7 + 1
    for matrix in report["matrices"]:
        assert 0.002 < matrix["weight_error"] < 0.01
        assert 0.002 < matrix["output_error"] < 0.015
    groups = {group.part: group for group in by_part(done.errors)}
    assert groups["mlp.gate_proj"].num_matrices == 4
    assert groups["mlp.gate_proj"].worst_output_error >= groups["mlp.gate_proj"].output_error


def test_an_interrupted_run_goes_on_and_changes_nothing(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    source = checkpoints["qwen3_5_moe-fused"]
    whole = convert(Order(source, tmp_path / "whole", "w4a8", SMALL))
    order = Order(source, tmp_path / "out", "w4a8", SMALL, num_threads=2)
    interrupted(order, whole.source_bytes // 2)
    assert not order.out.exists(), "nothing half-written carries the name"
    assert not (aside_of(order.out) / "config.json").exists(), "and it cannot be taken for a model"
    said: list[str] = []
    seen: list[tuple[int, int]] = []
    done: Converted = convert(order, Watcher(lambda *of: seen.append(of), say=said.append))
    assert 0 < done.num_kept < done.num_files
    assert seen[0][0] == whole.source_bytes and 0 < seen[0][1] < whole.source_bytes
    assert f"{done.num_kept} of {done.num_files} files are there" in said[0]
    assert files(order.out) == files(tmp_path / "whole")
    assert not aside_of(order.out).exists()
    assert done.errors == whole.errors


def test_a_finished_file_that_was_damaged_is_written_again(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    source = checkpoints["qwen3_5_moe-fused"]
    whole = convert(Order(source, tmp_path / "whole", "w8a8", SMALL))
    order = Order(source, tmp_path / "out", "w8a8", SMALL)
    interrupted(order, whole.source_bytes * 3 // 4)
    damaged = sorted(aside_of(order.out).glob("*.safetensors"))[0]
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    said: list[str] = []
    convert(order, Watcher(say=said.append))
    assert said[0] == f"{damaged.name} is not as it was written, and is written again"
    assert files(order.out) == files(tmp_path / "whole")


def test_work_of_other_settings_is_not_gone_on_with(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    source = checkpoints["qwen3-tied"]
    interrupted(Order(source, tmp_path / "out", "w8a8", SMALL), 1 << 17)
    before = files(aside_of(tmp_path / "out"))
    for other in (
        Order(source, tmp_path / "out", "w4a8", SMALL),
        Order(source, tmp_path / "out", "w8a8", 2 * SMALL),
        Order(checkpoints["qwen3_5_moe-fused"], tmp_path / "out", "w8a8", SMALL),
    ):
        with pytest.raises(
            ConfigError, match=r"interrupted conversion of another source.*scheme w8a8.*remove it"
        ):
            convert(other)
    assert files(aside_of(tmp_path / "out")) == before


def test_folders_that_must_not_be_written(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    source = checkpoints["qwen3-tied"]
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match=r"holds something.*qanat quantize --verify"):
        convert(Order(source, taken, "w8a8"))
    with pytest.raises(ConfigError, match="lies in the checkpoint"):
        convert(Order(source, source / "out", "w8a8"))
    with pytest.raises(ConfigError, match="is no folder"):
        convert(Order(source, taken / "letter.txt", "w8a8"))
    aside_of(tmp_path / "out").mkdir()
    (aside_of(tmp_path / "out") / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match=r"holds letter\.txt, but no conversion"):
        convert(Order(source, tmp_path / "out", "w8a8"))
    assert (taken / "letter.txt").read_text() == "dear"


def test_an_empty_folder_is_filled(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    convert(Order(checkpoints["qwen3-tied"], tmp_path / "out", "w8a8"))
    assert (tmp_path / "out" / "config.json").is_file()


def test_two_processes_do_not_write_the_same_folder(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    order = Order(checkpoints["qwen3-tied"], tmp_path / "out", "w8a8")
    aside_of(order.out).mkdir()
    held = os.open(aside_of(order.out) / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(ConversionError, match="another process is writing"):
        convert(order)
    os.close(held)
    convert(order)


def test_sources_that_cannot_be_converted(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    convert(Order(checkpoints["qwen3-tied"], tmp_path / "once", "w8a8"))
    with pytest.raises(ConfigError, match=r"is quantised already \(ascend\); serve it as it is"):
        convert(Order(tmp_path / "once", tmp_path / "twice", "w4a8"))
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_bytes((checkpoints["qwen3-tied"] / "config.json").read_bytes())
    tensors = load_file(checkpoints["qwen3-tied"] / "model.safetensors")
    name = "model.layers.2.mlp.up_proj.weight"
    tensors[name][5, 7] = float("inf")
    save_file(tensors, broken / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"tensor '{name}' in .*: a value is not finite"):
        convert(Order(broken, tmp_path / "out", "w8a8"))
    del tensors[name]
    save_file(tensors, broken / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"lacks tensor '{name}'"):
        convert(Order(broken, tmp_path / "other", "w8a8"))
    assert not (tmp_path / "out").exists() and not (tmp_path / "other").exists()


def test_finished_files_are_checked_with_progress(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    source = checkpoints["qwen3_5_moe-fused"]
    order = Order(source, tmp_path / "out", "w8a8", SMALL)
    interrupted(order, 1 << 18)
    size_bytes = sum(path.stat().st_size for path in aside_of(order.out).glob("*.safetensors"))
    told: list[int] = []
    read: list[int] = []
    convert(order, Watcher(check=told.append, checked=read.append))
    assert told == [size_bytes] and sum(read) == size_bytes > 0


def test_what_an_ended_run_was_in_the_middle_of_is_removed_before_room_is_sought(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = Order(checkpoints["qwen3-tied"], tmp_path / "out", "w8a8", SMALL)
    interrupted(order, 1 << 17)
    assert list(aside_of(order.out).glob("*.aside"))
    with monkeypatch.context() as patched:
        patched.setattr(target, "SPARE_BYTES", 1 << 60)
        with pytest.raises(CapacityError):
            convert(order)
    assert not list(aside_of(order.out).glob("*.aside"))
    assert list(aside_of(order.out).glob("*.safetensors")), "what is finished stays"


def test_a_full_disk_is_left_as_it_was(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "SPARE_BYTES", 1 << 60)
    with pytest.raises(CapacityError):
        convert(Order(checkpoints["qwen3-tied"], tmp_path / "out", "w8a8"))
    assert not list(tmp_path.iterdir())


def test_a_source_that_cannot_be_read_any_more_is_named(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(checkpoints["qwen3-tied"], source)

    def remove(size_bytes: int) -> None:
        (source / "config.json").unlink(missing_ok=True)

    with pytest.raises(ConversionError, match=r"source/config\.json cannot be read: No such file"):
        convert(Order(source, tmp_path / "out", "w8a8", SMALL), Watcher(advance=remove))


def test_a_disk_without_locks_is_not_taken_for_another_process(tmp_path: Path) -> None:
    failure = lock_failure(tmp_path, OSError(errno.ENOTSUP, "Operation not supported"))
    assert "cannot be locked: Operation not supported" in failure.message
    assert "another process is writing" in lock_failure(tmp_path, BlockingIOError()).message


def test_what_the_disk_cannot_hold_is_not_begun(tmp_path: Path) -> None:
    check_room(tmp_path / "deep" / "out", 1 << 20)
    with pytest.raises(CapacityError, match=r"needs 1073741824\.00 GiB and the disk has [\d.]+ GiB free"):
        check_room(tmp_path / "deep" / "out", 1 << 60)
