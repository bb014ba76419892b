"""Float matrices as whole numbers, by the compiled module: the search of `qanat.quant.scale_search`, bit for bit."""

from __future__ import annotations

from torch import Tensor

from qanat.kernels.native.module import is_built, native
from qanat.kernels.native.tensors import address_of, are_native, is_bf16


def can_round(rows: Tensor) -> bool:
    """True if the module is there and can read these rows as they lie."""
    return is_built() and are_native(rows) and rows.is_contiguous()


def round_groups(
    rows: Tensor, importance: Tensor | None, group_size: int, is_int4: bool, values: Tensor, scales: Tensor
) -> None:
    """Fills in the numbers and the scale of each group of inputs; may be called by several threads at once.

    Args:
        rows: [n, in] bf16 or fp32, contiguous.
        importance: [in] fp32, how much each input counts; None counts all alike.
        group_size: inputs that share a scale, a divisor of `in`.
        is_int4: -8..7 with scales that bf16 has; otherwise -127..127.
        values: [n, in] int8, contiguous.
        scales: [n, in / group_size] fp32, contiguous; no number stands where a value of the group is not finite.
    """
    num_rows, num_inputs = rows.shape
    native().round_groups(
        rows.data_ptr(),
        is_bf16(rows),
        is_int4,
        num_inputs,
        group_size,
        address_of(importance),
        values.data_ptr(),
        scales.data_ptr(),
        0,
        num_rows * (num_inputs // group_size),
    )
