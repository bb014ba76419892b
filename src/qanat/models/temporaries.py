"""Memory of what loading makes and drops: given back at once, so that it does not count beside the model."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""`M_TRIM_THRESHOLD` and `M_MMAP_THRESHOLD` of the GNU C library's `mallopt`."""
_MAPPED_BYTES = 2**20
_LARGEST_THRESHOLD_BYTES = 32 * 2**20
"""Where the library's own threshold ends; what is free at the heap's end then goes back from twice as much on."""


@contextlib.contextmanager
def temporaries_given_back() -> Iterator[None]:
    """While it is open, what takes 1 MiB or more has pages of its own, which go back to the system when it is freed.

    The GNU C library raises its threshold with every such block that is freed, up to 32 MiB; from then on they lie in
    the heap, where whatever small thing outlives them keeps their pages. Afterwards both thresholds are where they end
    by themselves, since in a step fresh pages cost more than they save. Other C libraries are left alone.
    """
    library = ctypes.CDLL(None)
    set_option = getattr(library, "mallopt", None)
    if set_option is None:
        yield
        return
    set_option(_MMAP_THRESHOLD, _MAPPED_BYTES)
    try:
        yield
    finally:
        set_option(_MMAP_THRESHOLD, _LARGEST_THRESHOLD_BYTES)
        set_option(_TRIM_THRESHOLD, 2 * _LARGEST_THRESHOLD_BYTES)
        if (trim := getattr(library, "malloc_trim", None)) is not None:
            trim(0)
