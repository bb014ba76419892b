from __future__ import annotations

import math

import torch

from qanat.kernels import ops
from qanat.kernels.reference.rotary import rotary_apply


def rotated(vector: list[float], position: float, frequencies: list[float]) -> list[float]:
    """Pairs (i, i + R/2) turned by position * frequency i, one by one."""
    half, out = len(frequencies), list(vector)
    for i, frequency in enumerate(frequencies):
        angle = position * frequency
        first, second = vector[i], vector[i + half]
        out[i] = first * math.cos(angle) - second * math.sin(angle)
        out[i + half] = second * math.cos(angle) + first * math.sin(angle)
    return out


def test_partial_rotation() -> None:
    frequencies = torch.tensor([1.0, 0.25, 0.01])
    positions = torch.tensor([[0, 1, 77, 1000]])
    x = torch.randn(4, 2, 10)
    cos, sin = ops.rotary_rows(positions, frequencies, None, 1.0, torch.float32)
    assert cos.shape == sin.shape == (4, 3)
    out = rotary_apply(x, cos, sin)
    for row, position in enumerate(positions[0].tolist()):
        for head in range(2):
            expected = rotated(x[row, head].tolist(), position, frequencies.tolist())
            torch.testing.assert_close(out[row, head], torch.tensor(expected), rtol=1e-4, atol=1e-4)
    assert torch.equal(out[..., 6:], x[..., 6:])
    assert torch.equal(out[0], x[0])


def test_three_axes_are_interleaved() -> None:
    """Heights own frequencies 1, 4, 7, ..., widths 2, 5, ..., each up to its section; times the rest."""
    frequencies = torch.rand(32)
    positions = torch.tensor([[3, 3], [40, 41], [500, 502]])
    cos, sin = ops.rotary_rows(positions, frequencies, (11, 11, 10), 1.0, torch.float32)
    axis_of = [1 if i % 3 == 1 and i < 33 else 2 if i % 3 == 2 and i < 30 else 0 for i in range(32)]
    for row in range(2):
        angles = torch.tensor([positions[axis, row] for axis in axis_of]) * frequencies
        torch.testing.assert_close(cos[row], angles.cos())
        torch.testing.assert_close(sin[row], angles.sin())


def test_equal_axes_are_ordinary_positions() -> None:
    frequencies, positions = torch.rand(32), torch.tensor([[0, 9, 262_143]])
    plain = ops.rotary_rows(positions, frequencies, (11, 11, 10), 1.5, torch.bfloat16)
    axes = ops.rotary_rows(positions.expand(3, -1), frequencies, (11, 11, 10), 1.5, torch.bfloat16)
    assert all(torch.equal(left, right) for left, right in zip(plain, axes, strict=True))


def test_rows_are_scaled_and_of_the_asked_type() -> None:
    frequencies, positions = torch.rand(4), torch.tensor([[5]])
    cos, _ = ops.rotary_rows(positions, frequencies, None, 1.0, torch.float32)
    scaled, _ = ops.rotary_rows(positions, frequencies, None, 1.25, torch.bfloat16)
    assert torch.equal(scaled, (cos * 1.25).bfloat16())
