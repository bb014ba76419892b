"""Memory while a checkpoint is loaded, quantised or not: the final size, and at most one file of it more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qanat.kernels.native.module import is_built
from tests.support.large_checkpoints import write_fp8, write_plain

FIXED_BYTES = 48 * 2**20
"""What the first calls of torch and the allocator take, however large the model is."""
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
folder, scheme = Path(sys.argv[1]), sys.argv[2] or None
config = ModelConfig.from_folder(folder)
before = peak_bytes()
model, _ = load_model(folder, config, torch.bfloat16, "cpu", quantization=scheme)
print(before, peak_bytes(), model.size_bytes())
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not is_built() or sys.platform != "linux", reason="needs packing, and /proc to measure it"
)
@pytest.mark.parametrize(
    ("write", "scheme", "least_mib"),
    [(write_fp8, "", 180), (write_plain, "", 360), (write_plain, "w8a8", 180), (write_plain, "w4a8", 90)],
)
def test_loading_takes_at_most_one_file_more_than_the_model(
    tmp_path: Path, write: Callable[[Path], int], scheme: str, least_mib: int
) -> None:
    largest = write(tmp_path)
    command = [sys.executable, "-c", MEASURE, str(tmp_path), scheme]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    before, peak, size = map(int, done.stdout.split())
    assert size > least_mib * 2**20, "large enough that what Python takes does not matter"
    assert peak - before <= size + largest + FIXED_BYTES, f"{(peak - before) / size:.2f} of the model's size"
