"""Rotary position embedding (Su et al. 2021), with the interleaved axes of M-RoPE."""

from __future__ import annotations

import torch
from torch import Tensor

from qanat.kernels.reference.elementwise import elementwise


def rotary_rows(
    positions: Tensor,
    inverse_frequencies: Tensor,
    mrope_section: tuple[int, int, int] | None,
    scale: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Rows cos and sin of position times frequency; frequency i may follow another position axis.

    With three axes, the height axis owns frequencies 1, 4, 7, ... and the width axis 2, 5, 8, ..., each below
    three times its section; the time axis owns the rest.
    """
    angles = positions.float().unsqueeze(-1) * inverse_frequencies
    rows = angles[0]
    if positions.shape[0] == 3 and mrope_section is not None:
        rows = rows.clone()
        for axis in (1, 2):
            own = slice(axis, 3 * mrope_section[axis], 3)
            rows[:, own] = angles[axis][:, own]
    cos, sin = elementwise(torch.cos, rows), elementwise(torch.sin, rows)
    return (cos * scale).to(dtype), (sin * scale).to(dtype)


def rotary_apply(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the pairs (i, i + R/2) of the first R dimensions of each head; the rest passes through."""
    half = cos.shape[-1]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    first, second, rest = x.tensor_split((half, 2 * half), -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), -1)
