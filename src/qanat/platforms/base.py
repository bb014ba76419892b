"""What the engine asks of a device family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from qanat.platforms.groups import ConnectedGroup, Place
from qanat.platforms.notes import Notes


@dataclass(frozen=True)
class MemoryInfo:
    """Memory that a process can use.

    Attributes:
        total_bytes: of the device.
        available_bytes: what can still be taken, caches that the system gives up on demand counted as free.
        source: where the smaller bound comes from, such as "cgroup v2 limit" or "MemAvailable".
    """

    total_bytes: int
    available_bytes: int
    source: str


@dataclass(frozen=True)
class Capabilities:
    """What a platform can do.

    Attributes:
        num_cores: processors that this process may run on.
        instruction_set: best vector extension, such as "AVX2" or "AVX512"; "DEFAULT" if none.
    """

    num_cores: int
    instruction_set: str


class Platform(Protocol):
    """A device family. If a difference between devices has no place here, it is added here."""

    name: str
    device: torch.device
    collectives: str

    def memory(self) -> MemoryInfo:
        """Memory right now."""

    def capabilities(self) -> Capabilities:
        """What the device can do; does not change while the process runs."""

    def set_num_threads(self, num_threads: int) -> None:
        """How many threads one op uses."""

    def join(self, place: Place, notes: Notes) -> ConnectedGroup:
        """Connects this rank with the others; returns once all are connected.

        Args:
            place: of this rank.
            notes: over which the ranks find each other.

        Raises:
            RuntimeError: the others did not come, or one that came is none of them.
        """
