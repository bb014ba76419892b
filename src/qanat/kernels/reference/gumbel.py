"""Sampling noise: a pure function of (seed, choice index, absolute position, token id) (design rule R6).

The definition, for any implementation to reproduce bit for bit. All integers are unsigned and wrap.

    mix64(z)  = z ^= z >> 30; z *= 0xBF58476D1CE4E5B9; z ^= z >> 27; z *= 0x94D049BB133111EB; z ^= z >> 31
                (SplitMix64's finaliser: Steele, Lea, Flood 2014)
    absorb(k, w) = mix64((k ^ w) + 0x9E3779B97F4A7C15)
    key       = absorb(absorb(absorb(0, seed mod 2^64), choice index), position)          64 bits
    mix32(z)  = z ^= z >> 16; z *= 0x7FEB352D; z ^= z >> 15; z *= 0x846CA68B; z ^= z >> 16
                (the two-round finaliser with the lowest known bias: Wellons 2018)
    bits      = mix32(mix32(token id ^ low half of key) + high half of key)               32 bits
    u         = (bits + 0.5) / 2^32                  exact in fp64, inside (0, 1)
    noise     = fp32(-log(-log(u)))                  logarithms in fp64, rounded once; from -3.13 to 22.87

The token whose fp32(logit / T + noise) is largest, ties to the lower id, is a draw from softmax(logits / T).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_MASK_64 = 2**64 - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_MULTIPLIERS_64 = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MULTIPLIERS_32 = (0x7FEB352D, 0x846CA68B - 2**32)  # as int32


def noise_key(seed: int, choice_index: int, position: int) -> int:
    """64-bit key of one row's noise.

    Args:
        seed: any integer; taken modulo 2^64, so negative seeds are fine.
        choice_index: which of the request's n sequences.
        position: index of the token that is being chosen; prompt and output count.
    """
    return position_key(sequence_key(seed, choice_index), position)


def sequence_key(seed: int, choice_index: int) -> int:
    """What the keys of all positions of a sequence begin with; see `noise_key`."""
    return position_key(position_key(0, seed), choice_index)


def position_key(key: int, position: int) -> int:
    """The key of one position, from its sequence's; see `noise_key`."""
    return _mix64(((key ^ (position & _MASK_64)) + _GOLDEN_GAMMA) & _MASK_64)


def noise_bits(keys: Sequence[int], token_ids: Tensor) -> Tensor:
    """The 32 noise bits of each row and token.

    Args:
        keys: R noise keys.
        token_ids: [V], or one list per row [R, V], integers below 2^31.

    Returns:
        [R, V] int64 in [0, 2^32).
    """
    halves = [[_as_int32(key), _as_int32(key >> 32)] for key in keys]
    low, high = (
        torch.tensor(halves, dtype=torch.int32, device=token_ids.device).reshape(-1, 2).split(1, dim=1)
    )
    bits = _mix32(_mix32(token_ids.to(torch.int32) ^ low).add_(high))
    return bits.to(torch.int64).bitwise_and_(0xFFFFFFFF)


def gumbel_noise(keys: Sequence[int], token_ids: Tensor) -> Tensor:
    """Standard Gumbel noise of each row and token.

    Args:
        keys: R noise keys.
        token_ids: [V], or one list per row [R, V].

    Returns:
        [R, V] fp32.
    """
    uniform = noise_bits(keys, token_ids).to(torch.float64).add_(0.5).mul_(2.0**-32)
    return uniform.log_().neg_().log_().neg_().to(torch.float32)


def _mix64(z: int) -> int:
    z = ((z ^ (z >> 30)) * _MULTIPLIERS_64[0]) & _MASK_64
    z = ((z ^ (z >> 27)) * _MULTIPLIERS_64[1]) & _MASK_64
    return z ^ (z >> 31)


def _mix32(z: Tensor) -> Tensor:
    """`mix32` on int32 lanes: products wrap, and a mask makes the arithmetic shift a logical one. Changes z."""
    z = z.bitwise_xor_((z >> 16).bitwise_and_(0xFFFF)).mul_(_MULTIPLIERS_32[0])
    z = z.bitwise_xor_((z >> 15).bitwise_and_(0x1FFFF)).mul_(_MULTIPLIERS_32[1])
    return z.bitwise_xor_((z >> 16).bitwise_and_(0xFFFF))


def _as_int32(word: int) -> int:
    """The low 32 bits, as a signed number of the same bits."""
    word &= 0xFFFFFFFF
    return word - 2**32 if word >= 2**31 else word
