"""Calibration: what the layers are given, measured layer by layer, is what the whole model gives them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from qanat.config.model_config import ModelConfig
from qanat.conversion.calibration import calibrate, load, save
from qanat.conversion.convert import Order, convert
from qanat.core.errors import ConversionError
from qanat.layers.mlp import Experts
from qanat.models.loader import load_model
from tests.support.forward import ForwardRunner

SEQUENCES = [list(range(7, 40)), [3, 1, 4, 1, 5, 9, 2, 6], list(range(200, 300))]


@pytest.fixture(scope="module")
def config(checkpoints: dict[str, Path]) -> ModelConfig:
    return ModelConfig.from_folder(checkpoints["qwen3_5_moe-fused"])


def test_it_is_what_the_whole_model_sees(checkpoints: dict[str, Path], config: ModelConfig) -> None:
    folder = checkpoints["qwen3_5_moe-fused"]
    told: list[tuple[int, int]] = []
    measured = calibrate(folder, config, SEQUENCES, lambda *of: told.append(of))
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4)]
    model = load_model(folder, config, torch.bfloat16, "cpu")[0]
    seen: dict[str, list[Tensor]] = {}

    def watch(name: str, module: nn.Module) -> None:
        module.register_forward_pre_hook(lambda each, given: seen.setdefault(name, []).append(given[0]))

    for name, module in model.named_modules():
        if hasattr(module, "method") and not isinstance(module, Experts) and "embed_tokens" not in name:
            watch(name, module)
    model.model.norm.register_forward_pre_hook(lambda each, given: None)
    runner = ForwardRunner(model)
    for index, sequence in enumerate(SEQUENCES):
        runner.step([(str(index), sequence)])
    assert len(seen) > 30
    for name, inputs in seen.items():
        rows = torch.cat(inputs).float()
        torch.testing.assert_close(measured[name].mean_square, rows.square().mean(0), rtol=0.02, atol=1e-4)
        assert 0 < len(measured[name].rows) <= 16
    heads = measured["lm_head"]
    assert heads.mean_square.shape == (64,) and (heads.mean_square > 0).all()
    experts = [name for name in measured if ".experts." in name]
    assert any(name.endswith(".gate_up") for name in experts) and any(
        name.endswith(".down") for name in experts
    )
    assert all(len(measured[name].rows) == 0 for name in experts)


def test_results_are_kept(checkpoints: dict[str, Path], config: ModelConfig, tmp_path: Path) -> None:
    measured = calibrate(checkpoints["qwen3_5_moe-fused"], config, SEQUENCES[:1])
    save(measured, tmp_path / "kept.npz")
    again = load(tmp_path / "kept.npz")
    assert again.keys() == measured.keys()
    for name, each in measured.items():
        assert torch.equal(again[name].mean_square, each.mean_square)
        assert torch.equal(again[name].rows, each.rows)


@pytest.mark.parametrize("size_bytes", [0, 3, 500, -10])
def test_results_that_are_damaged_are_refused(
    size_bytes: int, checkpoints: dict[str, Path], config: ModelConfig, tmp_path: Path
) -> None:
    path = tmp_path / "kept.npz"
    save(calibrate(checkpoints["qwen3_5_moe-fused"], config, SEQUENCES[:1]), path)
    path.write_bytes(path.read_bytes()[:size_bytes])
    with pytest.raises(ConversionError, match=r"kept\.npz is damaged"):
        load(path)


def test_outputs_come_closer(checkpoints: dict[str, Path], config: ModelConfig, tmp_path: Path) -> None:
    """The report of both measures the outputs of the same real rows; scales chosen for them give smaller errors."""
    folder = checkpoints["qwen3_5_moe-fused"]
    measured = calibrate(folder, config, SEQUENCES)
    for each in measured.values():  # a few inputs are much larger than the others, as in large models
        each.mean_square[::9] *= 100
        each.rows[:, ::9] *= 10
    with_it = convert(
        Order(folder, tmp_path / "a", "w4a8", calibrate=lambda folder: measured, calibration="x")
    )
    ignored = {
        name: type(each)(torch.ones_like(each.mean_square), each.rows) for name, each in measured.items()
    }
    without = convert(
        Order(folder, tmp_path / "b", "w4a8", calibrate=lambda folder: ignored, calibration="y")
    )
    pairs = [
        (mine.output_error, others.output_error)
        for mine, others in zip(with_it.errors, without.errors, strict=True)
        if mine.kind == "W4A8_DYNAMIC" and ".experts." not in mine.matrix
    ]
    assert sum(mine for mine, _ in pairs) < 0.97 * sum(others for _, others in pairs)
