"""How many rows a product really has, so that a row's bits do not depend on it. No torch here: the memory plan counts.

A library for matrix products cuts a sum over many inputs into parts, and where it cuts depends on the number of rows
(measured: oneDNN 3.12 on AVX-512 and AMX, MKL 2024.2; 1 to 4 threads). Sums over few inputs it never cuts on processors
with AVX-512; whether that holds is tried out (`qanat.kernels.reference.uncut`).
"""

from __future__ import annotations

ROW_GRANULE = 256
"""Most rows of a product over few inputs; rows are multiplied in groups of so many."""

MAX_UNCUT_INPUTS = 384
"""Products over no more inputs than these give the same bits for any number of rows from 16 on (16-bit: from 2 on)."""

FIXED_ROWS = 32
"""Rows of every 16-bit product over more inputs than that."""

FIXED_WIDE_ROWS = 16
"""Rows of every fp32 product over more inputs than that, and the fewest of one over fewer."""

FIXED_HEAD_ROWS = 4
"""Rows that a tile of a head is multiplied with: one row costs no more than alone, 16 a little more than together."""


def padded_rows(num_rows: int) -> int:
    """The next of 2, 3, 4, 6, 8, 12 ... 192, 256, and beyond that the next multiple of 256."""
    if num_rows > ROW_GRANULE:
        return -(-num_rows // ROW_GRANULE) * ROW_GRANULE
    power = 1 << (num_rows - 1).bit_length() if num_rows > 1 else 2
    halfway = 3 * power // 4
    return halfway if 1 < num_rows <= halfway else power


def padded_wide_rows(num_rows: int) -> int:
    """The next multiple of 16."""
    return -(-num_rows // FIXED_WIDE_ROWS) * FIXED_WIDE_ROWS


def padded_query_rows(num_rows: int, head_dim: int) -> int:
    """At least as many as a sixteenth of the head size, and two: with fewer, scores are added up in another order."""
    return max(num_rows, head_dim // 16, 2)
