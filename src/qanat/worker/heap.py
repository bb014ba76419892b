"""How much memory the C library has given out: what grows while torch's profiler collects events."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

_FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks"),
    "keepcost",
)


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


def heap_bytes() -> int:
    """Bytes that are allocated and not freed, tensors on the CPU included; 0 where the C library cannot tell."""
    ask = _mallinfo()
    if ask is None:
        return 0
    info = ask()
    return int(info.uordblks + info.hblkhd)


@functools.cache
def _mallinfo() -> Callable[[], _Mallinfo] | None:
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is not None:
        ask.restype = _Mallinfo
    return ask
