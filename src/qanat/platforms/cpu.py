"""The CPU of this host, within the limits of its container."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from qanat.config.machine import read_machine
from qanat.platforms.base import Capabilities, MemoryInfo
from qanat.platforms.groups import ConnectedGroup, Place
from qanat.platforms.notes import Notes

SHARED_ELEMENTS = 2**16
"""An operation on so many elements for each thread is shared among torch's threads."""


class CpuPlatform:
    """A `Platform`.

    Args:
        root: file system root, another one in tests.
    """

    name = "cpu"
    device = torch.device("cpu")
    collectives = "gloo"

    def __init__(self, root: Path = Path("/")) -> None:
        """Touches nothing yet."""
        self._root = root

    def memory(self) -> MemoryInfo:
        """What the machine and the control groups leave to this process."""
        machine = read_machine(self._root)
        return MemoryInfo(machine.total_bytes, machine.available_bytes, machine.memory_bound)

    def capabilities(self) -> Capabilities:
        """Cores that this process may use, and the vector extension that torch found."""
        return Capabilities(len(os.sched_getaffinity(0)), torch.backends.cpu.get_cpu_capability())

    def set_num_threads(self, num_threads: int) -> None:
        """Threads of torch's own pool; they start now and inherit what the calling thread may run on."""
        torch.set_num_threads(num_threads)
        if num_threads > 1:
            torch.zeros(num_threads * SHARED_ELEMENTS).add_(1)

    def join(self, place: Place, notes: Notes) -> ConnectedGroup:
        """Ranks on CPUs are connected by gloo."""
        from qanat.platforms.gloo import GlooGroup  # a process of its own needs none of it

        return GlooGroup(place, notes)
