"""Exchanges between ranks, for a model whose passes are recorded: each is a host node."""

from __future__ import annotations

from torch import Tensor

from qanat.kernels.recording import host_call
from qanat.platforms.groups import ParallelGroup


class HostNodeGroup:
    """A `ParallelGroup` whose collectives are called from Python at every replay of a graph.

    Args:
        group: what exchanges.
    """

    def __init__(self, group: ParallelGroup) -> None:
        """Stands for the same place."""
        self._group = group
        self.rank, self.size = group.rank, group.size

    def all_reduce(self, x: Tensor) -> Tensor:
        """See `ParallelGroup`."""
        return host_call(self._group.all_reduce, x)

    def all_gather(self, x: Tensor) -> Tensor:
        """See `ParallelGroup`."""
        return host_call(self._group.all_gather, x)

    def broadcast(self, x: Tensor) -> Tensor:
        """See `ParallelGroup`."""
        return host_call(self._group.broadcast, x)
