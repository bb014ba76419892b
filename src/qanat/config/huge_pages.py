"""How the system gives huge pages and which allocator is preloaded: both decide how fast large memory is read."""

from __future__ import annotations

import re
from pathlib import Path

_SETTING = Path("sys/kernel/mm/transparent_hugepage/enabled")
_ALLOCATOR = re.compile(r"lib(jemalloc|tcmalloc\w*|mimalloc)[^/]*\.so")


def huge_page_setting(root: Path = Path("/")) -> str:
    """`always`, `madvise` or `never`; empty where the system has no such setting."""
    try:
        text = (root / _SETTING).read_text(encoding="utf-8")
    except OSError:
        return ""
    chosen = re.search(r"\[(\w+)\]", text)
    return chosen[1] if chosen else ""


def loaded_allocator(root: Path = Path("/")) -> str:
    """Name of the allocator that serves this process instead of the C library's; empty for none."""
    try:
        maps = (root / "proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = _ALLOCATOR.search(maps)
    return found[1] if found else ""


def allocator_in(preload: str) -> str:
    """Name of the allocator in a value of LD_PRELOAD; empty for none."""
    found = _ALLOCATOR.search(preload)
    return found[1] if found else ""
