"""How tensors are handed to the compiled module: as addresses and sizes, checked here."""

from __future__ import annotations

import torch
from torch import Tensor

from qanat.kernels.native.arena import new as new  # outputs of ops

FLOAT_TYPES = (torch.float32, torch.bfloat16)
"""What the native kernels read and write."""

RowsTuple = tuple[int, bool, int, int, int]
"""(address, is bf16, inner rows, outer stride, inner stride), strides in elements."""

NO_ROWS: RowsTuple = (0, False, 1, 0, 0)


def is_bf16(x: Tensor) -> bool:
    """True for bf16, False for fp32."""
    return bool(x.dtype == torch.bfloat16)


def address_of(x: Tensor | None) -> int:
    """Of its first element; 0 for none."""
    return 0 if x is None else x.data_ptr()


def are_native(*tensors: Tensor | None) -> bool:
    """True if all of them are bf16 or fp32 on the CPU."""
    return all(x is None or (x.dtype in FLOAT_TYPES and x.device.type == "cpu") for x in tensors)


def rows(x: Tensor) -> RowsTuple:
    """[T, C] or [T, H, D] as the module reads it; a copy is made only where the last axis is not contiguous.

    The caller keeps `x` alive, so it passes what `readable` gave it.
    """
    if x.dim() == 2:
        return x.data_ptr(), x.dtype == torch.bfloat16, 1, x.stride(0), 0
    return x.data_ptr(), x.dtype == torch.bfloat16, x.shape[1], x.stride(0), x.stride(1)


def readable(x: Tensor) -> Tensor:
    """The tensor itself where its last axis is contiguous, otherwise a copy that is."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def as_int32(x: Tensor) -> Tensor:
    """Contiguous int32; the tensor itself where it is that already."""
    return x.to(torch.int32).contiguous()
