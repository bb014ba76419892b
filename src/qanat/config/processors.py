"""Which processors this process may use, and which of them share a core. Reads /sys; no torch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from qanat.config.system_files import read_system_file


@dataclass(frozen=True)
class Processor:
    """One logical processor.

    Attributes:
        number: the system's number of it.
        core: equal for the hardware threads of one core, and only for them.
    """

    number: int
    core: str


def usable_processors(
    root: Path = Path("/"), affinity: frozenset[int] | None = None
) -> tuple[Processor, ...]:
    """Those that the process may run on, by number.

    Args:
        root: where `sys` lies.
        affinity: their numbers; asked of the system unless given.
    """
    numbers = own_affinity() if affinity is None else affinity
    return tuple(Processor(number, _core(root, number)) for number in sorted(numbers))


def own_affinity() -> frozenset[int]:
    """Numbers of the processors that this process may run on; control groups (cpuset) are in it."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def in_binding_order(processors: Iterable[Processor]) -> list[int]:
    """Numbers of the processors, first one of each core, then the second threads of the cores, and so on."""
    num_seen: dict[str, int] = {}
    places = []
    for processor in processors:
        turn = num_seen.get(processor.core, 0)
        num_seen[processor.core] = turn + 1
        places.append((turn, processor.number))
    return [number for _, number in sorted(places)]


def number_ranges(numbers: Iterable[int]) -> str:
    """As the system writes lists of processors: 0-3,8."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in parts)


def _core(root: Path, number: int) -> str:
    topology = root / f"sys/devices/system/cpu/cpu{number}/topology"
    core, package = read_system_file(topology / "core_id"), read_system_file(topology / "physical_package_id")
    return f"{package}:{core}" if core else f"processor {number}"
