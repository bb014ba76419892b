"""Memory while a quantised checkpoint is loaded: the final size, and at most one file of it more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.kernels.native.module import is_built
from qanat.models.registry import build_model
from tests.config.tiny_folder import write_model

NUM_FILES = 6
FIXED_BYTES = 48 * 2**20
"""What the first calls of torch and the allocator take, however large the model is."""
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

MEASURE = """
import sys, torch
from pathlib import Path
from qanat.config.model_config import ModelConfig
from qanat.kernels.providers import choose_providers
from qanat.models.loader import load_model

def peak_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

choose_providers(1)
folder = Path(sys.argv[1])
config = ModelConfig.from_folder(folder)
before = peak_bytes()
model, _ = load_model(folder, config, torch.bfloat16, "cpu")
print(before, peak_bytes(), model.size_bytes())
"""


def write_fp8(folder: Path) -> int:
    """Some hundred MB of FP8 in several files; returns the size of the largest."""
    write_model(folder, **SHAPE, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    model = build_model(ModelConfig.from_folder(folder), torch.bfloat16, "meta")
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if name.endswith("_proj.weight"):
            codes = torch.randint(0, 120, parameter.shape, dtype=torch.uint8)
            tensors[name] = codes.view(torch.float8_e4m3fn)
            blocks = [size // 128 for size in parameter.shape]
            tensors[f"{name}_scale_inv"] = torch.full(blocks, 0.001)
        else:
            tensors[name] = torch.ones(parameter.shape, dtype=torch.bfloat16)
    names = list(tensors)
    step = -(-len(names) // NUM_FILES)
    for i in range(NUM_FILES):
        part = {name: tensors[name] for name in names[i * step : (i + 1) * step]}
        save_file(part, folder / f"model-{i + 1:05d}-of-{NUM_FILES:05d}.safetensors")
    return max(path.stat().st_size for path in folder.glob("*.safetensors"))


@pytest.mark.slow
@pytest.mark.skipif(
    not is_built() or sys.platform != "linux", reason="needs packing, and /proc to measure it"
)
def test_loading_takes_at_most_one_file_more_than_the_model(tmp_path: Path) -> None:
    largest = write_fp8(tmp_path)
    command = [sys.executable, "-c", MEASURE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    before, peak, size = map(int, done.stdout.split())
    assert size > 180 * 2**20, "large enough that what Python takes does not matter"
    assert peak - before <= size + largest + FIXED_BYTES, f"{(peak - before) / size:.2f} of the model's size"
