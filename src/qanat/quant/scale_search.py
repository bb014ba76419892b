"""How our own schemes round: the search for scales, in torch.

A scale is searched that makes the squared error of its group small. For whole numbers q that some trial scale gives,
the best scale is the least-squares one, sum(w x q) / sum(w q q), and it lowers the error by sum(w x q)^2 / sum(w q q)
below that of all zeros; so the trial with the largest such gain wins. w is how much an input counts: 1, or what
calibration measured. The plain scale (largest value onto the largest number) is kept where the search does not beat
it.

Every sum is a fixed tree of elementwise additions, and nothing else here depends on an order: the result is the same
for any number of threads, any number of rows at a time, and on every processor.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

INT8_MAX = 127
INT4_MIN, INT4_MAX = -8, 7

INT8_TRIALS = (126.0, 127.0, 128.0)
INT4_TRIALS = (7.75, 8.25, 7.25, 6.75, 8.75)
"""The largest value of a group is put on such a number; what it clips, it gives the others as finer steps."""

_Bounds = tuple[int, int]


def int8_rows(x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Numbers -127..127 and a scale for each row.

    Args:
        x: [n, in] fp32.
        weight: [in] fp32, how much each input counts; None counts all alike.

    Returns:
        Numbers [n, in] int8, scales [n, 1] fp32.

    Raises:
        ValueError: a value is not finite.
    """
    bounds = (-INT8_MAX, INT8_MAX)
    largest = check_finite(x.abs().amax(1, keepdim=True))
    scale = _searched(x, weight, largest, INT8_TRIALS, bounds, 1)
    scale = _better(x, weight, scale, largest / INT8_MAX, bounds, 1)
    return _quantised(x, scale, bounds).to(torch.int8), scale


def int4_rows(rows: Tensor, importance: Tensor | None, group_size: int) -> tuple[Tensor, Tensor]:
    """Numbers -8..7 and a scale that bf16 has for each group of inputs of a row.

    Args:
        rows: [n, in] fp32.
        importance: [in] fp32, how much each input counts; None counts all alike.
        group_size: inputs that share a scale, a divisor of `in`.

    Returns:
        Numbers [n, in] int8, scales [n, in / group_size] fp32.

    Raises:
        ValueError: a value is not finite.
    """
    bounds = (INT4_MIN, INT4_MAX)
    num_groups = rows.shape[1] // group_size
    # Groups along the last axis: every step then works on long rows, and a group's sum adds whole rows.
    x = _groups_last(rows.view(-1, num_groups, group_size))
    weight = None
    if importance is not None:
        weight = _groups_last(importance.view(1, num_groups, -1).expand(len(rows), -1, -1))
    place = x.abs().argmax(0, keepdim=True)
    largest = check_finite(x.gather(0, place))
    scale = _narrow(_searched(x, weight, -largest, INT4_TRIALS, bounds, 0))
    scale = _better(x, weight, scale, _narrow(largest.abs() / INT4_MAX), bounds, 0)
    values = _quantised(x, scale, bounds).to(torch.int8)
    return values.t().reshape(rows.shape), scale.view(-1, num_groups)


def _searched(
    x: Tensor, weight: Tensor | None, largest: Tensor, trials: Sequence[float], bounds: _Bounds, axis: int
) -> Tensor:
    """The least-squares scale of the best trial for each group along `axis`; 0 for a group of zeros.

    A trial puts `largest` on its number; where `largest` has the sign that its value has not, on minus it.
    """
    best_gain = torch.full_like(largest, -1.0)
    best_scale = torch.zeros_like(largest)
    weighted = x if weight is None else x * weight
    inverse = torch.where(largest == 0, 0.0, 1.0 / largest)
    for trial in trials:
        q = x.mul(inverse * trial).round_().clamp_(*bounds)
        product = tree_sum(weighted * q, axis)
        square = tree_sum(q.square() if weight is None else q.square().mul_(weight), axis)
        scale = torch.where(square > 0, product / square, 0.0)
        gain = product * scale
        is_better = gain > best_gain
        best_gain = torch.where(is_better, gain, best_gain)
        best_scale = torch.where(is_better, scale, best_scale)
    return best_scale


def _better(
    x: Tensor, weight: Tensor | None, scale: Tensor, plain: Tensor, bounds: _Bounds, axis: int
) -> Tensor:
    """Of two scales for each group the one with the smaller error as it will be stored; `plain` on a tie.

    A group of zeros gets the scale 1: readers take 0 for damage.
    """
    errors = [_error(x, weight, each, bounds, axis) for each in (scale, plain)]
    better = torch.where(errors[0] < errors[1], scale, plain)
    return torch.where(better == 0, 1.0, better)


def _error(x: Tensor, weight: Tensor | None, scale: Tensor, bounds: _Bounds, axis: int) -> Tensor:
    difference = _quantised(x, scale, bounds).mul_(scale).sub_(x).square_()
    return tree_sum(difference if weight is None else difference.mul_(weight), axis)


def _quantised(x: Tensor, scale: Tensor, bounds: _Bounds) -> Tensor:
    """Whole numbers as fp32, ties to even; 0 where the scale is 0."""
    return torch.where(scale == 0, 0.0, x / scale).round_().clamp_(*bounds)


def _narrow(scale: Tensor) -> Tensor:
    return scale.bfloat16().float()


def check_finite(largest: Tensor) -> Tensor:
    """The tensor itself.

    Raises:
        ValueError: a value is not finite.
    """
    if not largest.isfinite().all():
        raise ValueError("a value is not finite")
    return largest


def _groups_last(grouped: Tensor) -> Tensor:
    """[n, groups, size] -> [size, n * groups]."""
    return grouped.reshape(-1, grouped.shape[-1]).t().contiguous()


def tree_sum(x: Tensor, axis: int) -> Tensor:
    """Sums along an axis, kept with size 1, in an order that depends on its size only. Overwrites x: [..., n, ...]."""
    size = x.shape[axis]
    while size > 1:
        half = size // 2
        x.narrow(axis, 0, half).add_(x.narrow(axis, size - half, half))
        size -= half
    return x.narrow(axis, 0, 1)
