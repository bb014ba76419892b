"""Small numbers that are packed into larger ones."""

from __future__ import annotations

import torch
from torch import Tensor

WORD_BITS = 32
"""Of the integers that small numbers are packed into."""

FP4_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""E2M1: the three low bits of a code; the fourth is the sign (OCP Microscaling Formats 1.0)."""

EXPONENT_BIAS = 127
EXPONENT_NAN = 255
"""E8M0: a scale is 2 to the code minus the bias; the highest code is no number."""


def unpacked_words(words: Tensor, bits: int, axis: int) -> Tensor:
    """Unsigned numbers of so many bits, lowest bits first, in the place of int32 words along an axis -> uint8."""
    per_word, mask = WORD_BITS // bits, (1 << bits) - 1
    parts = [((words >> (bits * place)) & mask).to(torch.uint8) for place in range(per_word)]
    axis %= words.dim()
    stacked = torch.stack(parts, axis + 1)
    return stacked.flatten(axis, axis + 1)


def signed_nibbles(codes: Tensor) -> Tensor:
    """Four-bit two's complement in the low bits of uint8 -> int8, -8..7."""
    return ((codes & 15) ^ 8).to(torch.int8) - 8


def low_and_high(packed: Tensor, axis: int) -> Tensor:
    """Codes of two nibbles a byte, the low one first, along an axis -> uint8."""
    raw = packed.detach().view(torch.uint8)
    axis %= raw.dim()
    return torch.stack((raw & 15, raw >> 4), axis + 1).flatten(axis, axis + 1)


def fp4_values(codes: Tensor) -> Tensor:
    """E2M1 codes in the low bits of uint8 -> fp32."""
    table = torch.tensor((*FP4_MAGNITUDES, *(-size for size in FP4_MAGNITUDES)))
    return table[codes.long()]


def exponent_scales(codes: Tensor) -> Tensor:
    """E8M0 codes in uint8 -> fp32; NaN for the code that is none."""
    scales = torch.exp2(codes.float() - EXPONENT_BIAS)
    return torch.where(codes == EXPONENT_NAN, torch.nan, scales)
