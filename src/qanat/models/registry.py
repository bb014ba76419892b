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
from qanat.quant.scheme import Scheme, apply_scheme

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
    scheme: Scheme | None = None,
) -> CausalLM:
    """Builds a model, or one rank's share of it, with uninitialised weights; on "meta" it costs no memory.

    Args:
        config: the model's shape.
        dtype: type of weights and activations.
        device: where the weights will lie.
        group: the ranks that share it; None for one.
        scheme: how it is quantised; None if it is not.

    Raises:
        CheckpointError: the family has no code, or the scheme does not know how a layer is stored.
    """
    factory = ParameterFactory(dtype, torch.device(device), group or SingleGroup())
    model = CausalLM(config, family_of(config), factory).eval()
    if scheme is not None:
        apply_scheme(model, scheme, factory)
    return model


def family_of(config: ModelConfig) -> Family:
    """The code of the model's family.

    Raises:
        CheckpointError: it has none.
    """
    family = FAMILIES.get(config.model_family)
    if family is None:
        raise CheckpointError(
            f"model family {config.model_family!r} is not supported, only {', '.join(FAMILIES)}"
        )
    return family
