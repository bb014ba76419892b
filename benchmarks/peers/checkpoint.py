"""A checkpoint with random weights in the form of Hugging Face, for engines that cannot do without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from qanat.config.model_config import ModelConfig
from qanat.models.registry import build_model

FILE = "model.safetensors"


def write_checkpoint(raw: dict[str, Any], folder: Path, seed: int = 0) -> Path:
    """Writes config.json and the weights; does nothing where they are already.

    Args:
        raw: contents of a config.json.
        folder: made if need be.
        seed: other seeds give other weights.

    Returns:
        The folder.
    """
    text = json.dumps(raw, indent=2)
    config = folder / "config.json"
    if (folder / FILE).is_file() and config.is_file() and config.read_text(encoding="utf-8") == text:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    model = build_model(ModelConfig.from_dict(raw), torch.bfloat16, "meta")
    weights = {}
    for name, parameter in model.named_parameters():
        info = parameter.info  # type: ignore[attr-defined]  # every parameter of a model has it
        values = torch.randn(parameter.shape) * info.dummy_std + info.dummy_mean
        weights[name] = values.to(parameter.dtype)
    save_file(weights, folder / FILE, metadata={"format": "pt"})
    config.write_text(text, encoding="utf-8")
    return folder
