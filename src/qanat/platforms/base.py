"""What the engine asks of a device family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from qanat.platforms.groups import Meeting


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

    def meeting(self, port: int | None, timeout_s: float) -> Meeting:
        """Where ranks of this host find each other: a new place, or the one behind this port.

        Args:
            port: None opens a place on a free port.
            timeout_s: how long a rank waits for the others.
        """
