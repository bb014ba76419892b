"""From float matrices to whole numbers and scales: how our own schemes round.

A scale is searched that makes the squared error of its group small. For whole numbers q that some trial scale gives,
the best scale is the least-squares one, sum(w x q) / sum(w q q), and it lowers the error by sum(w x q)^2 / sum(w q q)
below that of all zeros; so the trial with the largest such gain wins. w is how much an input counts: 1, or what
calibration measured. The plain scale (largest value onto the largest number) is kept where the search does not beat
it.

Every sum is a fixed tree of elementwise additions, and nothing else here depends on an order: the result is the same
for any number of threads, any number of rows at a time, and on every processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from qanat.kernels.quantised import GROUP_SIZE, Int4Matrix, Int8Matrix

INT8_MAX = 127
INT4_MIN, INT4_MAX = -8, 7

INT8_TRIALS = (126.0, 127.0, 128.0)
INT4_TRIALS = (7.75, 8.25, 7.25, 6.75, 8.75)
"""The largest value of a group is put on such a number; what it clips, it gives the others as finer steps."""

LEAST_IMPORTANCE = 1e-3
"""Of an input that calibration never saw, as a share of the mean: it may come up later."""

_PIECE_VALUES = 32_000
"""Values worked on at a time: they stay in a core's cache, and torch does not split what is below 32,768 over
threads."""

_Bounds = tuple[int, int]


def quantise_int8(weight: Tensor, importance: Tensor | None = None, num_threads: int = 1) -> Int8Matrix:
    """Rounds each output of a matrix, or of a stack of them, with one scale.

    Args:
        weight: ([E,] out, in), any float type.
        importance: [in], mean square of each input over real activations; None counts all alike.
        num_threads: that share the rows.

    Raises:
        ValueError: a value is not finite.
    """
    rows = weight.detach().reshape(-1, weight.shape[-1])
    values = torch.empty(rows.shape, dtype=torch.int8)
    scales = torch.empty(rows.shape[0])

    def work(piece: slice) -> None:
        values[piece], scales[piece] = _int8_rows(rows[piece].float(), importance)

    _for_all(work, rows, num_threads)
    return Int8Matrix(values.view(weight.shape), scales.view(weight.shape[:-1]))


def quantise_int4(
    weight: Tensor, importance: Tensor | None = None, num_threads: int = 1, group_size: int = GROUP_SIZE
) -> Int4Matrix:
    """Rounds each group of inputs of a matrix, or of a stack of them, with one scale.

    Scales are numbers that bf16 has. They may be negative: there is one more step below zero than above, which is given
    to the side of the largest value.

    Args:
        weight: ([E,] out, in), any float type; `in` is a multiple of the group.
        importance: [in], as for `quantise_int8`.
        num_threads: that share the rows.
        group_size: inputs that share a scale.

    Raises:
        ValueError: a value is not finite, or the inputs do not divide into groups.
    """
    num_inputs = weight.shape[-1]
    if num_inputs % group_size:
        raise ValueError(f"{num_inputs} inputs do not divide into groups of {group_size}")
    rows = weight.detach().reshape(-1, num_inputs)
    values = torch.empty(rows.shape, dtype=torch.int8)
    scales = torch.empty(rows.shape[0], num_inputs // group_size)

    def work(piece: slice) -> None:
        values[piece], scales[piece] = _int4_rows(rows[piece].float(), importance, group_size)

    _for_all(work, rows, num_threads)
    return Int4Matrix(values.view(weight.shape), scales.view(*weight.shape[:-1], -1), group_size)


def _int8_rows(x: Tensor, importance: Tensor | None) -> tuple[Tensor, Tensor]:
    bounds = (-INT8_MAX, INT8_MAX)
    weight = None if importance is None else _relative(importance)
    largest = _finite(x.abs().amax(1, keepdim=True))
    scale = _searched(x, weight, largest, INT8_TRIALS, bounds, 1)
    scale = _better(x, weight, scale, largest / INT8_MAX, bounds, 1)
    return _quantised(x, scale, bounds).to(torch.int8), scale.squeeze(1)


def _int4_rows(rows: Tensor, importance: Tensor | None, group_size: int) -> tuple[Tensor, Tensor]:
    bounds = (INT4_MIN, INT4_MAX)
    num_groups = rows.shape[1] // group_size
    # Groups along the last axis: every step then works on long rows, and a group's sum adds whole rows.
    x = _groups_last(rows.view(-1, num_groups, group_size))
    weight = None
    if importance is not None:
        weight = _groups_last(_relative(importance).view(1, num_groups, -1).expand(len(rows), -1, -1))
    place = x.abs().argmax(0, keepdim=True)
    largest = _finite(x.gather(0, place))
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
        product = _tree_sum(weighted * q, axis)
        square = _tree_sum(q.square() if weight is None else q.square().mul_(weight), axis)
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
    return _tree_sum(difference if weight is None else difference.mul_(weight), axis)


def _quantised(x: Tensor, scale: Tensor, bounds: _Bounds) -> Tensor:
    """Whole numbers as fp32, ties to even; 0 where the scale is 0."""
    return torch.where(scale == 0, 0.0, x / scale).round_().clamp_(*bounds)


def _narrow(scale: Tensor) -> Tensor:
    return scale.bfloat16().float()


def _finite(largest: Tensor) -> Tensor:
    if not largest.isfinite().all():
        raise ValueError("a value is not finite")
    return largest


def _relative(importance: Tensor) -> Tensor:
    """With a mean of one, and never below a small share of it; all alike if nothing was seen."""
    importance = importance.float()
    mean = _tree_sum(importance.clone(), 0) / len(importance)
    return torch.where(mean > 0, importance / mean, 1.0).clamp_min(LEAST_IMPORTANCE)


def _groups_last(grouped: Tensor) -> Tensor:
    """[n, groups, size] -> [size, n * groups]."""
    return grouped.reshape(-1, grouped.shape[-1]).t().contiguous()


def _tree_sum(x: Tensor, axis: int) -> Tensor:
    """Sums along an axis, kept with size 1, in an order that depends on its size only. Overwrites x."""
    size = x.shape[axis]
    while size > 1:
        half = size // 2
        x.narrow(axis, 0, half).add_(x.narrow(axis, size - half, half))
        size -= half
    return x.narrow(axis, 0, 1)


def _for_all(work: Callable[[slice], None], rows: Tensor, num_threads: int) -> None:
    """Does the work on all rows, piece by piece; the pieces do not touch each other's results."""
    num_rows, num_inputs = rows.shape
    step = max(_PIECE_VALUES // max(num_inputs, 1), 1)
    pieces: Iterator[slice] = (
        slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step)
    )
    if num_threads == 1 or num_rows <= step:
        for piece in pieces:
            work(piece)
        return
    with ThreadPoolExecutor(num_threads) as pool:
        for _ in pool.map(work, pieces):
            pass
