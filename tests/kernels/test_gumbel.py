from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qanat.kernels.reference.gumbel import gumbel_noise, noise_bits, noise_key

MASK_64 = 2**64 - 1
MASK_32 = 2**32 - 1


def scalar_key(seed: int, choice_index: int, position: int) -> int:
    """The documented definition, one integer at a time."""
    key = 0
    for word in (seed % 2**64, choice_index, position):
        z = ((key ^ word) + 0x9E3779B97F4A7C15) & MASK_64
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK_64
        key = z ^ (z >> 31)
    return key


def scalar_bits(key: int, token_id: int) -> int:
    def mix(z: int) -> int:
        z = ((z ^ (z >> 16)) * 0x7FEB352D) & MASK_32
        z = ((z ^ (z >> 15)) * 0x846CA68B) & MASK_32
        return z ^ (z >> 16)

    return mix((mix(token_id ^ (key & MASK_32)) + (key >> 32)) & MASK_32)


@given(
    seed=st.integers(-(2**63), 2**64 - 1),
    choice_index=st.integers(0, 127),
    position=st.integers(0, 2**20),
    token_ids=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40),
)
def test_bits_follow_the_documented_definition(
    seed: int, choice_index: int, position: int, token_ids: list[int]
) -> None:
    key = noise_key(seed, choice_index, position)
    assert key == scalar_key(seed, choice_index, position)
    bits = noise_bits([key], torch.tensor(token_ids))[0].tolist()
    assert bits == [scalar_bits(key, token_id) for token_id in token_ids]


def test_fixed_values_never_change() -> None:
    # Written down once: another implementation, or a later version, must give the same.
    key = noise_key(42, 1, 1000)
    assert key == 0x45E588F522A5F289
    assert noise_bits([key], torch.arange(4))[0].tolist() == [2981355567, 1448853665, 566231574, 4001338430]


def test_negative_seeds_are_taken_modulo_two_to_the_64() -> None:
    assert noise_key(-1, 0, 5) == noise_key(2**64 - 1, 0, 5)
    assert noise_key(-(2**63), 0, 5) == noise_key(2**63, 0, 5)


def test_noise_is_finite_at_both_ends_and_follows_the_formula() -> None:
    key = noise_key(7, 0, 3)
    bits = noise_bits([key], torch.arange(5000))[0].tolist()
    expected = [-math.log(-math.log((value + 0.5) / 2**32)) for value in bits]
    noise = gumbel_noise([key], torch.arange(5000))[0]
    assert noise.dtype == torch.float32
    torch.testing.assert_close(noise, torch.tensor(expected, dtype=torch.float32), rtol=2e-7, atol=1e-7)
    assert math.isfinite(-math.log(-math.log(0.5 / 2**32)))
    assert math.isfinite(-math.log(-math.log((MASK_32 + 0.5) / 2**32)))


@pytest.mark.parametrize("varied", ["seed", "choice_index", "position", "token_id"])
def test_bits_are_uniform_and_uncorrelated_along_every_key_part(varied: str) -> None:
    count = 16384
    if varied == "token_id":
        bits = noise_bits([noise_key(1, 0, 0)], torch.arange(count))[0]
    else:
        parts = {"seed": 3, "choice_index": 0, "position": 0}
        keys = [noise_key(**(parts | {varied: i})) for i in range(count)]
        bits = noise_bits(keys, torch.tensor([17]))[:, 0]
    buckets = torch.bincount(bits >> 28, minlength=16).double()
    statistic = float(((buckets - count / 16) ** 2 / (count / 16)).sum())
    assert statistic < 44.3  # chi-square with 15 degrees of freedom exceeds it once in 10,000
    uniform = bits.double() / 2**32 - 0.5
    for lag in (1, 2, 64):
        correlation = float((uniform[lag:] * uniform[:-lag]).mean() * 12)
        assert abs(correlation) < 4 / math.sqrt(count)
    each_bit = torch.stack([(bits >> place) & 1 for place in range(32)]).double().mean(dim=1)
    assert float((each_bit - 0.5).abs().max()) < 4.5 * 0.5 / math.sqrt(count)


def test_rows_of_token_ids_give_the_same_as_one_shared_list() -> None:
    keys = [noise_key(5, 0, position) for position in range(4)]
    shared = torch.tensor([9, 2, 77])
    rows = shared.expand(4, 3).contiguous()
    assert torch.equal(gumbel_noise(keys, shared), gumbel_noise(keys, rows))
