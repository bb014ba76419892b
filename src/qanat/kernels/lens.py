"""How many rows and tokens each request has, as ops take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Lens: TypeAlias = Tensor | Sequence[int]
"""An int32 tensor [R] in the host's memory, which a graph reads anew at each replay, or plain numbers."""


def as_ints(lens: Lens) -> list[int]:
    """The numbers as they are now."""
    return lens.tolist() if isinstance(lens, Tensor) else list(lens)


def as_host_int32(lens: Lens) -> Tensor:
    """Contiguous int32 in the host's memory; the tensor itself where it is that already."""
    if isinstance(lens, Tensor):
        return lens
    return torch.tensor(lens, dtype=torch.int32)
