"""Ranks of a tensor-parallel group as threads of one process, over real collectives: quick, for tests of models."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from qanat.platforms.cpu import CpuPlatform
from qanat.platforms.groups import ConnectedGroup, ParallelGroup, Place, SingleGroup
from qanat.platforms.notes import Notes

Result = TypeVar("Result")
TIMEOUT_S = 60.0
SECRET = b"of these threads"


def joined(rank: int, size: int, notes: Notes, *, timeout_s: float = TIMEOUT_S) -> ConnectedGroup:
    """A connected rank of a group on the loopback interface."""
    place = Place(rank, size, "127.0.0.1", SECRET, timeout_s, timeout_s)
    return CpuPlatform().join(place, notes)


def on_ranks(size: int, work: Callable[[ParallelGroup], Result]) -> list[Result]:
    """What `work` returns on each rank, in order of rank; one rank runs in the calling thread."""
    if size == 1:
        return [work(SingleGroup())]
    notes = Notes(lambda key, value: None)  # one copy for all: they are in one process

    def run(rank: int) -> Result:
        return work(joined(rank, size, notes))

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))
