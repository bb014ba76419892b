"""Groups of ranks that compute one model together. A group is passed in wherever it is needed, never global."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class ParallelGroup(Protocol):
    """One rank's place in a group, and how it exchanges tensors with the others.

    Every rank of a group calls the same methods in the same order with tensors of the same shape and type.

    Attributes:
        rank: 0 to size - 1.
        size: number of ranks.
    """

    rank: int
    size: int

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over the ranks, added in fp32 in ascending order of rank and rounded once; the same bits on all."""
        ...

    def all_gather(self, x: Tensor) -> Tensor:
        """The ranks' tensors joined along the last axis, in order of rank."""
        ...

    def broadcast(self, x: Tensor) -> Tensor:
        """The values of rank 0."""
        ...


class Meeting(Protocol):
    """Where the ranks of a group find each other.

    Attributes:
        port: by which other processes find it.
        address: of the interface over which its ranks are connected.
    """

    port: int
    address: str

    def join(self, rank: int, size: int, timeout_s: float) -> ParallelGroup:
        """Returns once all ranks are connected.

        Args:
            rank: this process's place.
            size: number of ranks.
            timeout_s: a rank that is silent for so long in the middle of a collective makes it fail.

        Raises:
            RuntimeError: the others did not come.
        """
        ...


class SingleGroup:
    """A `ParallelGroup` of one rank: there is nothing to exchange."""

    rank = 0
    size = 1

    def all_reduce(self, x: Tensor) -> Tensor:
        """The tensor itself."""
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        """The tensor itself."""
        return x

    def broadcast(self, x: Tensor) -> Tensor:
        """The tensor itself."""
        return x


class PlannedGroup:
    """A place in a group that does not run: it sizes what a rank would hold. Its collectives raise RuntimeError.

    Args:
        rank, size: the place.
    """

    def __init__(self, rank: int, size: int) -> None:
        """Connects to nobody."""
        self.rank, self.size = rank, size

    def all_reduce(self, x: Tensor) -> Tensor:
        """Raises RuntimeError."""
        raise RuntimeError("a planned group has no ranks to exchange tensors with")

    def all_gather(self, x: Tensor) -> Tensor:
        """Raises RuntimeError."""
        return self.all_reduce(x)

    def broadcast(self, x: Tensor) -> Tensor:
        """Raises RuntimeError."""
        return self.all_reduce(x)
