"""Ranks of a tensor-parallel group as threads of one process, over real collectives: quick, for tests of models."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from qanat.platforms.cpu import CpuPlatform
from qanat.platforms.groups import ParallelGroup, SingleGroup

Result = TypeVar("Result")
TIMEOUT_S = 60.0


def on_ranks(size: int, work: Callable[[ParallelGroup], Result]) -> list[Result]:
    """What `work` returns on each rank, in order of rank; one rank runs in the calling thread."""
    if size == 1:
        return [work(SingleGroup())]
    place = CpuPlatform().meeting(None, TIMEOUT_S)

    def run(rank: int) -> Result:
        own = place if rank == 0 else CpuPlatform().meeting(place.port, TIMEOUT_S)
        return work(own.join(rank, size, TIMEOUT_S))

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))
