"""How heads lie in the KV cache: in a float type as they are, in int8 with their scale behind the values.

A head's scale is its largest magnitude / 127, fixed when it is written (rule R9): NaN where a value is not finite.
"""

from __future__ import annotations

import torch
from torch import Tensor

from qanat.core.cache_spec import SCALE_BYTES

MAX_SIZE = 127.0


def stored_heads(heads: Tensor, dtype: torch.dtype) -> Tensor:
    """Heads [..., D] as a cache of this type holds them: [..., D], for int8 [..., D + 4]."""
    if dtype != torch.int8:
        return heads.to(dtype)
    wide = heads.float()
    peak = wide.abs().amax(-1, keepdim=True)
    peak = torch.where(torch.isfinite(peak), peak, torch.nan)
    largest = torch.full_like(peak, MAX_SIZE)  # torch divides a plain number by way of a reciprocal
    factor = largest / peak
    values = torch.round(wide * torch.where(torch.isfinite(factor), factor, 0.0)).nan_to_num(0.0)
    scales = (peak / largest).contiguous().view(torch.int8)
    return torch.cat((values.to(torch.int8), scales), -1)


def read_heads(stored: Tensor) -> Tensor:
    """The values of what a cache holds; of int8 [..., D + 4] -> fp32 [..., D]."""
    if stored.dtype != torch.int8:
        return stored
    values, scales = stored[..., :-SCALE_BYTES], stored[..., -SCALE_BYTES:]
    return values.float() * scales.contiguous().view(torch.float32)
