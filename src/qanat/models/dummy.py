"""Random weights for any config.json, for benchmarks and memory plans: no checkpoint needed."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.models.decoder import CausalLM, LoadedModel
from qanat.models.loader import replace_parameter
from qanat.models.registry import build_model
from qanat.models.units import load_units
from qanat.platforms.groups import ParallelGroup
from qanat.quant.parameter import ParameterInfo
from qanat.quant.scheme import Scheme

_POOL_SIZE = 1_048_573
"""Values drawn per parameter; larger ones repeat them. Prime, so that no two rows of a matrix are equal."""


def load_dummy(
    config: ModelConfig,
    dtype: torch.dtype,
    seed: int = 0,
    device: str | torch.device = "cpu",
    group: ParallelGroup | None = None,
    scheme: Scheme | None = None,
) -> CausalLM:
    """Builds the model and fills it parameter by parameter with values that keep activations finite.

    The values depend on the seed and the parameter's name only; a rank keeps its share of them.

    Args:
        config: the model's shape.
        dtype: type of the weights.
        seed: other seeds give other weights.
        device: where the weights shall lie.
        group: the ranks that share the model; None for one.
        scheme: quantises the values; None leaves them as they are.
    """
    model = build_model(config, dtype, "meta", group, scheme)
    fill_dummy(model, seed, device)
    return model


def fill_dummy(model: LoadedModel, seed: int, device: str | torch.device) -> None:
    """Fills a model that is on "meta", see `load_dummy`."""
    for unit in list(load_units(model)):
        for name, parameter in unit.parameters.items():
            info = parameter.info
            values = _draw(parameter.dtype, info, f"{seed}:{name}")
            own = values if info.shard is None else info.shard.of(values).clone()
            replace_parameter(model, name, info.laid_out(own.to(device)))
        unit.parameters.clear()
        unit.finalize()


def _draw(dtype: torch.dtype, info: ParameterInfo, key: str) -> Tensor:
    """Normal values in the whole parameter's shape."""
    num_values = math.prod(info.whole_shape)
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little") >> 1
    generator = torch.Generator().manual_seed(seed)
    pool = torch.randn(min(num_values, _POOL_SIZE), generator=generator)
    pool = (pool * info.dummy_std + info.dummy_mean).to(dtype)
    values = torch.empty(num_values, dtype=dtype)
    for chunk in values.split(pool.numel()):
        chunk.copy_(pool[: chunk.numel()])
    return values.view(info.whole_shape)
