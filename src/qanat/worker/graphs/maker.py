"""What the runner needs of a kind of graphs, so that those of other devices can stand in the CPU's place."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from qanat.kernels.native.arena import make_arena
from qanat.kernels.native.graph import capture


class Graph(Protocol):
    """A recorded call.

    Attributes:
        result: what the call returned; `replay` writes new values to the same tensors.
        replay: runs everything again, on what the inputs hold by now.
        host_nodes: names of functions that Python calls between the graph's parts.
    """

    result: Any
    replay: Callable[[], None]
    host_nodes: tuple[str, ...]


class GraphMaker(Protocol):
    """Records calls on one device."""

    def capture(self, function: Callable[[], Any], host_ops: Collection[str] = ()) -> Graph:
        """Calls a function and records it.

        Args:
            function: reads nothing but tensors that stay where they are.
            host_ops: ops that stay outside the graph.

        Raises:
            GraphCaptureError: it cannot be recorded.
        """
        ...


class NativeGraphMaker:
    """Makes the CPU's graphs. What they compute lies in the same memory for all of them: one replays at a time.

    Args:
        size_bytes: of that memory.
    """

    def __init__(self, size_bytes: int) -> None:
        self._arena = make_arena(size_bytes)

    def capture(self, function: Callable[[], Any], host_ops: Collection[str] = ()) -> Graph:
        """See `GraphMaker`."""
        graph: Graph = capture(function, self._arena.overlay(), host_ops)
        return graph
