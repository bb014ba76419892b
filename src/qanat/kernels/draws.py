"""How a row's token is chosen, as a record that kernels read: `Draw` of csrc/kernels/arguments.hpp."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

DRAW = np.dtype(
    [
        ("key", np.uint64),
        ("top_p", np.float64),
        ("temperature", np.float32),
        ("log_min_p", np.float32),
        ("top_k", np.int32),
        ("unused", np.int32),
    ]
)
"""The noise's key; probability kept (1 keeps all); temperature (0 takes the largest score); logarithm of the smallest
probability kept, relative to the largest (-inf keeps all); number kept (0 keeps all)."""

MIN_TEMPERATURE = 1e-5
"""Below it the most likely token is taken; a division by less could overflow."""

Draws = npt.NDArray[np.void]
"""[T] records."""


def make_draw(
    key: int = 0, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> Draws:
    """One record.

    Args:
        key: of the noise, 64 bits.
        temperature: below MIN_TEMPERATURE the other settings mean nothing.
        top_k: tokens kept; 0 or less keeps all, and what is not below their number must be given as 0.
        top_p: probability kept, from above 0 to 1.
        min_p: smallest probability kept, relative to the largest; from 0 to 1.
    """
    if temperature < MIN_TEMPERATURE:
        temperature, top_k, top_p, min_p = 0.0, 0, 1.0, 0.0
    log_min_p = math.log(min_p) if min_p > 0.0 else -math.inf
    return np.array([(key, top_p, temperature, log_min_p, max(top_k, 0), 0)], dtype=DRAW)


def as_bytes(draws: Draws) -> npt.NDArray[np.uint8]:
    """The same records as [T, 32] bytes."""
    return draws.view(np.uint8).reshape(len(draws), DRAW.itemsize)
