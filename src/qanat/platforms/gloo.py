"""Ranks on CPUs, connected by torch.distributed's gloo. No default group is made: nothing of it is global."""

from __future__ import annotations

import ctypes
import hmac
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from qanat.platforms.groups import CollectiveError, Place
from qanat.platforms.notes import Notes

LOOK_UP = timedelta(seconds=0.5)
"""So often a rank that waits in a collective looks whether the group was abandoned."""
DIGEST = "sha256"
DIGEST_BYTES = 32


class GlooGroup:
    """A `ConnectedGroup` over TCP connections of one interface.

    gloo takes whoever connects to its port with the right number, so each pair of ranks proves over its connection that
    both know the group's secret, before anything else is sent there.

    Args:
        place: this rank's.
        notes: over which the ranks tell each other their ports.

    Raises:
        RuntimeError: the others did not come, or one that came is none of them.
    """

    def __init__(self, place: Place, notes: Notes) -> None:
        """Returns once all ranks are connected."""
        self.rank, self.size = place.rank, place.size
        self._is_abandoned = False
        # The default options would connect over whatever address this host's name stands for.
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=place.address)]
        options._timeout = timedelta(seconds=place.step_timeout_s)
        self._store = _NotesStore(notes, place.join_timeout_s)
        self._group = dist.ProcessGroupGloo(self._store, place.rank, place.size, options)
        self._prove(place.secret)

    def all_reduce(self, x: Tensor) -> Tensor:
        """See `ParallelGroup`; gathered and then added here, as gloo's own sum has an order of its own."""
        sums = [part.float() for part in self._gather(x)]
        while len(sums) > 1:
            pairs = zip(sums[::2], sums[1::2], strict=False)
            sums = [left + right for left, right in pairs] + sums[len(sums) // 2 * 2 :]
        return sums[0].to(x.dtype)

    def all_gather(self, x: Tensor) -> Tensor:
        """See `ParallelGroup`."""
        return torch.cat(self._gather(x), -1)

    def broadcast(self, x: Tensor) -> Tensor:
        """See `ParallelGroup`."""
        values = x.contiguous().clone()
        self._wait(self._group.broadcast(values, 0))
        return values

    def abandon(self) -> None:
        """See `ConnectedGroup`."""
        self._is_abandoned = True

    def _gather(self, x: Tensor) -> list[Tensor]:
        own = x.contiguous()
        parts = [torch.empty_like(own) for _ in range(self.size)]
        self._wait(self._group.allgather([parts], [own]))
        return parts

    def _wait(self, work: dist.Work) -> None:
        while True:
            if self._is_abandoned:
                # What still waits would hold up the end of this process until its own time is over.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))
                raise CollectiveError("the group was abandoned")
            try:
                work.wait(LOOK_UP)
                return
            except RuntimeError as error:
                if work.is_completed():
                    raise CollectiveError(str(error)) from None

    def _prove(self, secret: bytes) -> None:
        others = [rank for rank in range(self.size) if rank != self.rank]
        sent = [_as_tensor(_proof(secret, self.rank, other)) for other in others]
        works = [self._group.send([proof], other, 0) for proof, other in zip(sent, others, strict=True)]
        for other in others:
            received = torch.empty(DIGEST_BYTES, dtype=torch.uint8)
            self._wait(self._group.recv([received], other, 0))
            if not hmac.compare_digest(bytes(received.tolist()), _proof(secret, other, self.rank)):
                raise RuntimeError(f"whoever connected as rank {other} does not know the group's secret")
        for work in works:
            self._wait(work)


class _NotesStore(dist.Store):  # type: ignore[misc]  # torch declares no types for it
    """What gloo asks of a key-value store, on `Notes`: a store of torch's own would listen to everybody."""

    def __init__(self, notes: Notes, timeout_s: float) -> None:
        super().__init__()
        self._notes, self._timeout_s = notes, timeout_s

    def set(self, key: str, value: bytes | str) -> None:
        self._notes.leave(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        return self._notes.get(key, self._timeout_s)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self._notes.get(key, self._timeout_s)

    def check(self, keys: Sequence[str]) -> bool:
        return all(self._notes.has(key) for key in keys)

    def has_extended_api(self) -> bool:
        return False


def _proof(secret: bytes, of: int, to: int) -> bytes:
    return hmac.digest(secret, f"rank {of} to rank {to}".encode(), DIGEST)


def _as_tensor(data: bytes) -> Tensor:
    return torch.tensor(list(data), dtype=torch.uint8)
