from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.models.tiny import FAMILIES, write_checkpoint
from tests.support.providers import reference_kernels as reference_kernels
from tests.support.providers import reference_kernels_of_fixtures as reference_kernels_of_fixtures

BY_NAME = {family.name: family for family in FAMILIES}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Plain checkpoints: dense with tied embeddings, experts stacked, and the same one by one with a vision tower."""
    folder = tmp_path_factory.mktemp("plain")
    names = ("qwen3-tied", "qwen3_5_moe-fused", "qwen3_5_moe-vision_per_expert")
    for name in names:
        (folder / name).mkdir()
        write_checkpoint(BY_NAME[name], folder / name, torch.bfloat16)
    return {name: folder / name for name in names}
