"""Groups of ranks that compute one model together. A group is passed in wherever it is needed, never global."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class CollectiveError(RuntimeError):
    """An exchange between ranks failed. Which of them is to blame cannot be told from here."""


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
        """The sum over the ranks, added in fp32 by a tree and rounded once; the same bits on all.

        Neighbours are added, then neighbouring sums, and so on; whoever has no neighbour is passed on. So 2, 4 or 8
        ranks that each hold a branch of one rank's tree of segments end with its bits (rule R12).
        """
        ...

    def all_gather(self, x: Tensor) -> Tensor:
        """The ranks' tensors joined along the last axis, in order of rank."""
        ...

    def broadcast(self, x: Tensor) -> Tensor:
        """The values of rank 0."""
        ...


class ConnectedGroup(ParallelGroup, Protocol):
    """A group whose ranks are in several processes."""

    def abandon(self) -> None:
        """From any thread: whoever waits in a collective of this rank gives up within a second, and no later one runs.

        For when it is known that another rank will never come.
        """
        ...


@dataclass(frozen=True)
class Place:
    """One rank's place in a group that is to be connected.

    Attributes:
        rank: 0 to size - 1.
        size: number of ranks.
        address: of the interface of this host over which it is connected.
        secret: known to the ranks of this group alone, and new for each group; with it they prove who they are.
        join_timeout_s: the others must have come within this.
        step_timeout_s: a rank that is silent for so long in the middle of a collective makes it fail.
    """

    rank: int
    size: int
    address: str
    secret: bytes
    join_timeout_s: float
    step_timeout_s: float


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
