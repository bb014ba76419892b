"""Which code builds which model family."""

from __future__ import annotations

import torch

from qanat.config.model_config import ModelConfig
from qanat.core.errors import CheckpointError
from qanat.models.decoder import CausalLM, Family
from qanat.models.qwen3 import Qwen3Family
from qanat.models.qwen3_5 import Qwen35Family
from qanat.platforms.groups import ParallelGroup, SingleGroup
from qanat.quant.parameter import ParameterFactory

FAMILIES: dict[str, Family] = {
    "qwen3": Qwen3Family(),
    "qwen3_moe": Qwen3Family(),
    "qwen3_5": Qwen35Family(),
    "qwen3_5_moe": Qwen35Family(),
}


def build_model(
    config: ModelConfig,
    dtype: torch.dtype,
    device: str | torch.device,
    group: ParallelGroup | None = None,
) -> CausalLM:
    """Builds a model, or one rank's share of it, with uninitialised weights; on "meta" it costs no memory.

    Args:
        config: the model's shape.
        dtype: type of weights and activations.
        device: where the weights will lie.
        group: the ranks that share it; None for one.

    Raises:
        CheckpointError: the family has no code.
    """
    factory = ParameterFactory(dtype, torch.device(device), group or SingleGroup())
    family = FAMILIES.get(config.model_family)
    if family is None:
        raise CheckpointError(
            f"model family {config.model_family!r} is not supported, only {', '.join(FAMILIES)}"
        )
    return CausalLM(config, family, factory).eval()
