"""How many rows a product really has. No torch here: the memory plan counts with it."""

from __future__ import annotations

ROW_GRANULE = 256
"""Larger numbers of rows are brought up to a multiple of this."""


def padded_rows(num_rows: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12 ... 192, 256, and beyond that the next multiple of 256."""
    if num_rows > ROW_GRANULE:
        return -(-num_rows // ROW_GRANULE) * ROW_GRANULE
    power = 1 << (num_rows - 1).bit_length() if num_rows > 1 else 1
    halfway = 3 * power // 4
    return halfway if num_rows <= halfway else power
