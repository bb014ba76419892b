"""What a packed weight is to those who do not know its layout."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Packed(Protocol):
    """A weight in the layout of some provider.

    Attributes:
        nbytes: that it takes.
    """

    nbytes: int

    def unpacked(self) -> Tensor:
        """The tensor that it was made from, as a copy."""
        ...


def is_packed(value: object) -> bool:
    """True for packed weights, false for tensors and everything else."""
    return hasattr(value, "unpacked")


def as_tensor(weight: Any) -> Tensor:
    """The weight as a tensor: for providers that did not pack it. Slow where it was packed, and right."""
    return weight if isinstance(weight, Tensor) else weight.unpacked()
