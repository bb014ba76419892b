"""How much of a rank's time goes into exchanges with the others."""

from __future__ import annotations

import time
from collections.abc import Callable

from torch import Tensor

from qanat.platforms.groups import ConnectedGroup


class MeteredGroup:
    """A `ConnectedGroup` that counts: two readings of the clock for each call.

    Args:
        group: the one that does the work.

    Attributes:
        num_entered: collectives that this rank has begun; the same on all ranks that are equally far.
        spent_s: seconds in those that have ended, waiting for slower ranks included.
    """

    def __init__(self, group: ConnectedGroup) -> None:
        self._group = group
        self.rank, self.size = group.rank, group.size
        self.num_entered = 0
        self.spent_s = 0.0

    def all_reduce(self, x: Tensor) -> Tensor:
        """See `ParallelGroup`."""
        return self._timed(self._group.all_reduce, x)

    def all_gather(self, x: Tensor) -> Tensor:
        """See `ParallelGroup`."""
        return self._timed(self._group.all_gather, x)

    def broadcast(self, x: Tensor) -> Tensor:
        """See `ParallelGroup`."""
        return self._timed(self._group.broadcast, x)

    def abandon(self) -> None:
        """See `ConnectedGroup`."""
        self._group.abandon()

    def _timed(self, exchange: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        self.num_entered += 1
        start_s = time.perf_counter()
        result = exchange(x)
        self.spent_s += time.perf_counter() - start_s
        return result
