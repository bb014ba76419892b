"""From float matrices to whole numbers and scales: our own schemes, as `qanat.quant.scale_search` rounds.

The native module has that search too, with the same bits, and is much faster at it; without it torch does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from qanat.kernels.native.rounding import can_round, round_groups
from qanat.kernels.quantised import GROUP_SIZE, Int4Matrix, Int8Matrix
from qanat.quant.scale_search import check_finite, int4_rows, int8_rows, tree_sum

LEAST_IMPORTANCE = 1e-3
"""Of an input that calibration never saw, as a share of the mean: it may come up later."""

_PIECE_VALUES = 32_000
"""Values worked on at a time: they stay in a core's cache, and torch does not split what is below 32,768 over
threads."""

_NATIVE_PIECE_VALUES = 1_000_000
"""Of the native search, which goes through a piece group by group; enough that handing it out costs nothing."""


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
    values, scales = _rounded(rows, importance, rows.shape[1], False, num_threads)
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
    values, scales = _rounded(rows, importance, group_size, True, num_threads)
    return Int4Matrix(values.view(weight.shape), scales.view(*weight.shape[:-1], -1), group_size)


def _rounded(
    rows: Tensor, importance: Tensor | None, group_size: int, is_int4: bool, num_threads: int
) -> tuple[Tensor, Tensor]:
    """Numbers [n, in] int8 and scales [n, in / group_size] of rows [n, in], whoever computes them."""
    num_inputs = rows.shape[1]
    values = torch.empty(rows.shape, dtype=torch.int8)
    scales = torch.empty(rows.shape[0], num_inputs // max(group_size, 1))
    weight = None if importance is None else _relative(importance)
    is_native = can_round(rows)

    def work(piece: slice) -> None:
        if is_native:
            round_groups(rows[piece], weight, group_size, is_int4, values[piece], scales[piece])
            check_finite(scales[piece])
        elif is_int4:
            values[piece], scales[piece] = int4_rows(rows[piece].float(), weight, group_size)
        else:
            values[piece], scales[piece] = int8_rows(rows[piece].float(), weight)

    _for_all(work, rows, num_threads, _NATIVE_PIECE_VALUES if is_native else _PIECE_VALUES)
    return values, scales


def _relative(importance: Tensor) -> Tensor:
    """With a mean of one, and never below a small share of it; all alike if nothing was seen."""
    importance = importance.float()
    mean = tree_sum(importance.clone(), 0) / len(importance)
    return torch.where(mean > 0, importance / mean, 1.0).clamp_min(LEAST_IMPORTANCE).contiguous()


def _for_all(work: Callable[[slice], None], rows: Tensor, num_threads: int, piece_values: int) -> None:
    """Does the work on all rows, piece by piece; the pieces do not touch each other's results."""
    num_rows, num_inputs = rows.shape
    step = max(piece_values // max(num_inputs, 1), 1)
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
