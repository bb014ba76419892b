"""How the system gives huge pages and which allocator is preloaded: both decide how fast large memory is read."""

from __future__ import annotations

import re
from pathlib import Path

from qanat.config.system_files import read_system_file
from qanat.core.decision import Decision

PRELOAD_VARIABLE = "LD_PRELOAD"
"""Names libraries that the system loads into each program before its own."""

_SETTING = Path("sys/kernel/mm/transparent_hugepage/enabled")
_ALLOCATOR = re.compile(r"lib(jemalloc|tcmalloc\w*|mimalloc)[^/]*\.so")


def huge_page_setting(root: Path = Path("/")) -> str:
    """`always`, `madvise` or `never`; empty where the system has no such setting."""
    chosen = re.search(r"\[(\w+)\]", read_system_file(root / _SETTING))
    return chosen[1] if chosen else ""


def loaded_allocator(root: Path = Path("/")) -> str:
    """Name of the allocator that serves this process instead of the C library's; empty for none."""
    found = _ALLOCATOR.search(read_system_file(root / "proc/self/maps"))
    return found[1] if found else ""


def allocator_decision(preload: str, root: Path = Path("/")) -> Decision | None:
    """What is said at the start about a value of LD_PRELOAD that names an allocator; None if it names none."""
    wanted = allocator_in(preload)
    if not wanted:
        return None
    if loaded_allocator(root) == wanted:
        why = "serves Python, torch and the tokenizer; a step of the native kernels asks for little memory"
        return Decision(PRELOAD_VARIABLE, preload, wanted, why)
    why = f"{wanted} did not load: the system's loader says which file it did not find"
    return Decision(PRELOAD_VARIABLE, preload, "the C library's allocator", why)


def allocator_in(preload: str) -> str:
    """Name of the allocator in a value of LD_PRELOAD; empty for none."""
    found = _ALLOCATOR.search(preload)
    return found[1] if found else ""
