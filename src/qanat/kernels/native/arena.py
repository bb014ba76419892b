"""Where the outputs of native ops lie: in one piece of memory, sized in the plan.

Its regions are used again when their tensors die. What does not fit is asked of torch, and counted.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from qanat.kernels.native.module import native


class NoArena:
    """Has no room: everything is asked of torch."""

    def take(self, size_bytes: int) -> None:
        """Nothing."""


NO_ARENA = NoArena()
"""For outputs that outlive what an arena is for."""


class _Arenas(threading.local):
    """The arena of this thread, which goes before the process's."""

    own: Any = None


_ARENAS = _Arenas()
_STEP_ARENA: list[Any] = [None]


def make_arena(size_bytes: int) -> Any:
    """The module's object over memory of its own; pages take memory when they are first written to."""
    return native().Arena(size_bytes)


def use_step_arena(size_bytes: int) -> None:
    """Gives this process an arena for the outputs of ops; one that is large enough already stays.

    Args:
        size_bytes: as the memory plan has it; 0 leaves everything to torch.
    """
    arena = _STEP_ARENA[0]
    if size_bytes and (arena is None or arena.size_bytes < size_bytes):
        _STEP_ARENA[0] = make_arena(size_bytes)


def num_missed() -> int:
    """Outputs that found no room in the process's arena since it was made; 0 while there is none."""
    arena = _STEP_ARENA[0]
    return 0 if arena is None else int(arena.num_missed)


@contextmanager
def outputs_in(arena: Any) -> Iterator[None]:
    """Within it, outputs of this thread's ops lie in this arena instead."""
    before, _ARENAS.own = _ARENAS.own, arena
    try:
        yield
    finally:
        _ARENAS.own = before


def new(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """An op's output, not filled with anything."""
    arena = _ARENAS.own or _STEP_ARENA[0]
    count = math.prod(shape)
    if arena is None or not count:
        return torch.empty(shape, dtype=dtype)
    region = arena.take(count * dtype.itemsize)
    if region is None:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(region, dtype=dtype, count=count).view(shape)
