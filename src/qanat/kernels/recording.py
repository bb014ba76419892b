"""Calls that a graph cannot hold: while one is recorded they become host nodes, Python between its parts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Recorder(Protocol):
    """Whoever records a graph."""

    def host_node(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Calls the function now, and at each replay with the same arguments; returns its result."""
        ...


class _Current(threading.local):
    """What this thread records."""

    recorder: Recorder | None = None


CURRENT = _Current()


def host_call(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Calls a function that no graph can hold: it reads values, or waits for other processes.

    Its tensors are read where they lie at each replay, and its results are written where they lay at the recording.
    """
    recorder = CURRENT.recorder
    if recorder is None:
        return function(*args, **kwargs)
    assert not kwargs, "host nodes take their arguments by place"
    result: R = recorder.host_node(function, args)
    return result
