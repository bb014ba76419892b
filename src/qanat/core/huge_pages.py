"""Memory on huge pages: what is large and read in every step is read a third faster from them."""

from __future__ import annotations

import mmap

_HUGE_PAGE_ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)
HAS_HUGE_PAGES = _HUGE_PAGE_ADVICE is not None
"""Whether this system can be asked for them; whether it gives any is its own matter."""


def map_huge_pages(size_bytes: int) -> mmap.mmap:
    """Fresh zeroed memory, on huge pages where the system gives them; a page takes memory once it is written.

    Args:
        size_bytes: of it, at least 1.

    Raises:
        OSError: the system has not that much address space.
    """
    region = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if _HUGE_PAGE_ADVICE is not None:
        region.madvise(_HUGE_PAGE_ADVICE)
    return region
