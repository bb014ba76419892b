"""Products with quantised matrices: the contract that every provider meets bit for bit.

Integer sums are exact; everything else is fp32, elementwise, in the order that is written here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from qanat.kernels.quantised import NUM_SEGMENTS, Int4Matrix, Int8Matrix, QuantisedMatrix, StaticScale

MAX_SIZE = 127.0
MAX_EXACT_INPUTS = 1024
"""Sums of so many products of two int8 values are exact in fp32, whatever their order: 1024 * 2^14 = 2^24."""


def quantised_rows(x: Tensor, segment_length: int, static: StaticScale | None) -> tuple[Tensor, Tensor]:
    """Activations x [T, in] as whole numbers, with the scale of each segment of a row.

    Returns:
        fp32 [T, S, segment_length], zero beyond the inputs, and fp32 [T, S], S = in / segment_length rounded up. The
        scale of a segment with a value that is not finite is NaN, and its numbers are zero. Numbers are also zero
        where the segment's largest magnitude is so small that 127 / it is not finite.
    """
    num_rows, num_inputs = x.shape
    num_segments = -(-num_inputs // segment_length)
    wide = x.new_zeros(num_rows, num_segments * segment_length, dtype=torch.float32)
    wide[:, :num_inputs] = x
    parts = wide.view(num_rows, num_segments, segment_length)
    peak = parts.abs().amax(-1, keepdim=True)
    is_finite = torch.isfinite(peak)
    largest = torch.full_like(peak, MAX_SIZE)  # torch divides a plain number by way of a reciprocal
    if static is None:
        factor = largest / peak
        values = torch.round(parts * torch.where(torch.isfinite(factor), factor, 0.0))
        scales = peak / largest
    else:
        values = torch.round(
            torch.clamp(parts / torch.full_like(parts, static.scale) + static.offset, -128, 127)
        )
        values.view(num_rows, -1)[:, num_inputs:] = 0
        scales = torch.full_like(peak, static.scale)
    values = torch.where(is_finite, values, 0.0)
    return values, torch.where(is_finite, scales, torch.nan).squeeze(-1)


def wide_product(x: Tensor, matrix: QuantisedMatrix) -> Tensor:
    """Product of x [T, in] with the transposed matrix [out, in] -> [T, out] fp32."""
    length = matrix.inputs_per_segment
    if isinstance(matrix, Int8Matrix):
        values, scales = quantised_rows(x, length, matrix.static)
        parts = [
            _exact_product(values[:, segment], _columns(matrix, segment, length)) * scales[:, segment, None]
            for segment in range(values.shape[1])
        ]
        total = _tree([part * matrix.scales for part in parts])
        return total if matrix.bias is None else total + matrix.bias
    values, scales = quantised_rows(x, length, None)
    return _tree(
        [
            _cells_product(values[:, segment], matrix, segment) * scales[:, segment, None]
            for segment in range(values.shape[1])
        ]
    )


def linear(x: Tensor, matrix: QuantisedMatrix) -> Tensor:
    """The product, rounded once to the type of x."""
    return wide_product(x, matrix).to(x.dtype)


def embedding(token_ids: Tensor, matrix: QuantisedMatrix, dtype: torch.dtype) -> Tensor:
    """Rows of the table, value times scale in fp32, rounded once."""
    values = matrix.values.index_select(0, token_ids).float()
    scales = matrix.scales.index_select(0, token_ids)
    if isinstance(matrix, Int4Matrix):
        return (values * scales.repeat_interleave(matrix.group_size, 1)).to(dtype)
    return (values * scales.unsqueeze(1)).to(dtype)


def _columns(matrix: QuantisedMatrix, segment: int, length: int) -> Tensor:
    return matrix.values[:, segment * length : (segment + 1) * length]


def _exact_product(values: Tensor, weights: Tensor) -> Tensor:
    """Whole numbers [T, n] times int8 [out, m], m up to n -> the exact sums [T, out], rounded to fp32."""
    used = values[:, : weights.shape[1]]
    if weights.shape[1] <= MAX_EXACT_INPUTS:
        return used @ weights.float().t()
    return (used.double() @ weights.double().t()).float()


def _cells_product(values: Tensor, matrix: Int4Matrix, segment: int) -> Tensor:
    """Sum over the cells of a segment, ascending, of fma(cell's sum, the group's scale, sum so far) -> [T, out]."""
    weights = _columns(matrix, segment, matrix.inputs_per_segment)
    cell, first = matrix.inputs_per_cell, segment * matrix.inputs_per_segment
    total = values.new_zeros(values.shape[0], weights.shape[0])
    for start in range(0, weights.shape[1], cell):
        sums = _exact_product(values[:, start : start + cell], weights[:, start : start + cell])
        total = fused(sums, matrix.scales[:, (first + start) // matrix.group_size], total)
    return total


def fused(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The fp32 value of a * b + c, rounded once.

    The product of two fp32 is exact in fp64. The sum is rounded there to odd (Boldo and Melquiond, 2008), so that
    rounding it again to fp32 is as if it had been exact.
    """
    product, addend = a.double() * b.double(), c.double()
    total = product + addend
    seen = total - product
    error = (product - (total - seen)) + (addend - seen)
    bits = total.view(torch.int64)
    is_inexact = (error != 0) & torch.isfinite(error) & (bits & 1 == 0)
    step = torch.where((error > 0) == (total > 0), 1, -1)
    return torch.where(is_inexact, bits + step, bits).view(torch.float64).float()


def _tree(parts: list[Tensor]) -> Tensor:
    """((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)); segments that are not there count as zero."""
    s = parts + [torch.zeros_like(parts[0])] * (NUM_SEGMENTS - len(parts))
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
