"""Checkpoints of some hundred MB in several files, for tests that measure memory."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.models.registry import build_model
from tests.config.tiny_folder import write_model

NUM_FILES = 6
SHAPE = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 12,
    "tie_word_embeddings": True,
}


def write_plain(folder: Path) -> int:
    """384 MiB of bf16; returns the size of the largest file."""
    write_model(folder, **SHAPE)
    return _write_files(folder, _plain_tensors(folder))


def write_fp8(folder: Path) -> int:
    """192 MiB of FP8 with a scale for each block; returns the size of the largest file."""
    write_model(folder, **SHAPE, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    tensors: dict[str, Tensor] = {}
    for name, weight in _plain_tensors(folder).items():
        if name.endswith("_proj.weight"):
            codes = torch.randint(0, 120, weight.shape, dtype=torch.uint8)
            tensors[name] = codes.view(torch.float8_e4m3fn)
            blocks = [size // 128 for size in weight.shape]
            tensors[f"{name}_scale_inv"] = torch.full(blocks, 0.001)
        else:
            tensors[name] = weight
    return _write_files(folder, tensors)


def _plain_tensors(folder: Path) -> dict[str, Tensor]:
    model = build_model(ModelConfig.from_folder(folder), torch.bfloat16, "meta")
    return {
        name: torch.randn(each.shape, dtype=torch.bfloat16) / 32 for name, each in model.named_parameters()
    }


def _write_files(folder: Path, tensors: dict[str, Tensor]) -> int:
    names = list(tensors)
    step = -(-len(names) // NUM_FILES)
    for i in range(NUM_FILES):
        part = {name: tensors[name] for name in names[i * step : (i + 1) * step]}
        save_file(part, folder / f"model-{i + 1:05d}-of-{NUM_FILES:05d}.safetensors")
    return max(path.stat().st_size for path in folder.glob("*.safetensors"))
