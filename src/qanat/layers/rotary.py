"""Rotary position embedding: frequencies once per model, cos and sin rows once per step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from qanat.config.model_config import RopeConfig, YarnConfig
from qanat.kernels import ops


class RotaryEmbedding:
    """Makes the cos and sin rows of a step. Frequencies stay fp32 whatever the model's type.

    Args:
        config: the model's rotary settings.
        dtype: type of the rows.
    """

    def __init__(self, config: RopeConfig, dtype: torch.dtype) -> None:
        """Computes the frequencies."""
        self.config = config
        self.dtype = dtype
        self.scale = 1.0 if config.scaling is None else config.scaling.attention_factor
        self.inverse_frequencies = inverse_frequencies(config)

    def rows(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (cos, sin) [T, rotary_dim / 2] of positions [A, T]."""
        if self.inverse_frequencies.device != positions.device:
            self.inverse_frequencies = self.inverse_frequencies.to(positions.device)
        return ops.rotary_rows(
            positions, self.inverse_frequencies, self.config.mrope_section, self.scale, self.dtype
        )


def inverse_frequencies(config: RopeConfig) -> Tensor:
    """Frequencies fp32 [rotary_dim / 2]: theta^(-2i / rotary_dim), blended with the stretched ones under YaRN."""
    exponents = torch.arange(0, config.rotary_dim, 2, dtype=torch.float32, device="cpu") / config.rotary_dim
    plain = 1.0 / config.theta**exponents
    if config.scaling is None:
        return plain
    kept = _kept_share(config.scaling, config)
    return plain / config.scaling.factor * (1.0 - kept) + plain * kept


def _kept_share(yarn: YarnConfig, config: RopeConfig) -> Tensor:
    """How much of each frequency stays as it is: all of the fast ones, none of the slow ones, a ramp between."""
    low = _index_of(yarn.beta_fast, yarn, config)
    high = _index_of(yarn.beta_slow, yarn, config)
    if yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.rotary_dim - 1)
    width = high - low if high != low else 0.001
    index = torch.arange(config.rotary_dim // 2, dtype=torch.float32, device="cpu")
    return 1.0 - ((index - low) / width).clamp(0.0, 1.0)


def _index_of(num_rotations: float, yarn: YarnConfig, config: RopeConfig) -> float:
    """Index (fractional) of the frequency that turns so often within the original window."""
    wavelengths = yarn.original_max_position_embeddings / (num_rotations * 2.0 * math.pi)
    return config.rotary_dim * math.log(wavelengths) / (2.0 * math.log(config.theta))
