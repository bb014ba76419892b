"""Ranks on CPUs, connected by torch.distributed's gloo. No default group is made: nothing of it is global."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from qanat.platforms.groups import ParallelGroup

LOOPBACK = "127.0.0.1"


class GlooMeeting:
    """A `Meeting` on the loopback interface.

    Args:
        port: of the meeting that another process has opened; None opens one on a free port.
        timeout_s: how long a rank waits for what another one has not said yet.
    """

    def __init__(self, port: int | None, timeout_s: float) -> None:
        """Listens, or connects."""
        span, is_host = timedelta(seconds=timeout_s), port is None
        self._store = dist.TCPStore(LOOPBACK, port or 0, None, is_host, span, wait_for_workers=False)
        self.port: int = self._store.port
        self.address = LOOPBACK

    def join(self, rank: int, size: int, timeout_s: float) -> ParallelGroup:
        """See `Meeting`."""
        return GlooGroup(self._store, rank, size, timeout_s)


class GlooGroup:
    """A `ParallelGroup` over TCP connections of the loopback interface.

    Args:
        store: the meeting point.
        rank, size: this rank's place.
        timeout_s: a rank that is silent for so long in the middle of a collective makes it fail.

    Raises:
        RuntimeError: the others did not come.
    """

    def __init__(self, store: dist.TCPStore, rank: int, size: int, timeout_s: float) -> None:
        """Returns once all ranks are connected."""
        self.rank, self.size = rank, size
        # The default options would connect over whatever address this host's name stands for.
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=LOOPBACK)]
        options._timeout = timedelta(seconds=timeout_s)
        self._group = dist.ProcessGroupGloo(store, rank, size, options)

    def all_reduce(self, x: Tensor) -> Tensor:
        """See `ParallelGroup`; gathered and then added here, as gloo's own sum has an order of its own."""
        parts = self._gather(x)
        total = parts[0].float()
        for part in parts[1:]:
            total = total + part
        return total.to(x.dtype)

    def all_gather(self, x: Tensor) -> Tensor:
        """See `ParallelGroup`."""
        return torch.cat(self._gather(x), -1)

    def broadcast(self, x: Tensor) -> Tensor:
        """See `ParallelGroup`."""
        values = x.contiguous().clone()
        self._group.broadcast(values, 0).wait()
        return values

    def _gather(self, x: Tensor) -> list[Tensor]:
        own = x.contiguous()
        parts = [torch.empty_like(own) for _ in range(self.size)]
        self._group.allgather([parts], [own]).wait()
        return parts
