"""What a packed weight is to those who do not know its layout."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from qanat.kernels.quantised import Int4Matrix, Int8Matrix, QuantisedMatrix
from qanat.kernels.rows import RowFormat


class Packed(Protocol):
    """A weight in the layout of some provider.

    The memory is one piece, the same on every instruction set, and starts at a multiple of 64.
    """

    @property
    def nbytes(self) -> int:
        """Size of the memory."""
        ...

    @property
    def address(self) -> int:
        """Of the memory."""
        ...

    @property
    def row_format(self) -> RowFormat | None:
        """How its products read rows, if they quantise them."""
        ...

    def header(self) -> dict[str, Any]:
        """What is needed beside the memory to use it elsewhere (`qanat.kernels.providers.map_packed`); JSON-ready."""
        ...

    def move_to(self, address: int) -> None:
        """Uses a copy of the memory from the next op on."""
        ...

    def unpacked(self) -> Tensor | QuantisedMatrix:
        """What it was made from, as a copy."""
        ...


def is_packed(value: object) -> bool:
    """True for packed weights, false for tensors and everything else."""
    return hasattr(value, "unpacked")


def as_given(weight: Any) -> Any:
    """The weight before it was packed: for providers that did not do it. Slow where it was packed, and right."""
    return weight if isinstance(weight, Tensor | Int8Matrix | Int4Matrix) else weight.unpacked()
