"""Which processors threads of this process may run on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

_before_binding: list[frozenset[int]] = []
"""Where threads of this process ran when it bound one for the first time."""


def can_bind() -> bool:
    """True where the system lets a thread choose its processors."""
    return hasattr(os, "sched_setaffinity")


def bind_thread(processors: Collection[int]) -> bool:
    """Keeps the calling thread, and threads that it starts from now on, on these processors.

    Returns:
        False if the system does not allow it, or if there are none to keep to; nothing has changed then.
    """
    if not processors or not can_bind():
        return False
    before = frozenset(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, processors)
    except OSError:  # a control group has taken one of them away meanwhile
        return False
    if not _before_binding:
        _before_binding.append(before)
    return True


def unbind_thread() -> None:
    """Lets the calling thread run wherever this process could before any of its threads was bound."""
    if _before_binding:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, _before_binding[0])


def keep_off(processors: Collection[int]) -> bool:
    """Keeps the calling thread, and what it starts from now on, off these processors if there are others.

    Returns:
        True if it is kept off.
    """
    if not processors or not can_bind():
        return False
    return bind_thread(os.sched_getaffinity(0) - set(processors))
