"""The CPU of this host, within the limits of its container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch

from qanat.platforms.base import Capabilities, MemoryInfo

_UNLIMITED_BYTES = 2**60
"""cgroup v1 writes "no limit" as a number near 2^63."""


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
        """The smallest of MemAvailable and what each enclosing control group still allows."""
        meminfo = _key_values((self._root / "proc/meminfo").read_text())
        total, available = meminfo["MemTotal"] * 1024, meminfo["MemAvailable"] * 1024
        best = MemoryInfo(total, available, "MemAvailable")
        for limit, used, source in self._cgroup_limits():
            total = min(total, limit)
            if limit - used < best.available_bytes:
                best = MemoryInfo(total, max(limit - used, 0), source)
        return MemoryInfo(total, best.available_bytes, best.source)

    def capabilities(self) -> Capabilities:
        """Cores that this process may use, and the vector extension that torch found."""
        return Capabilities(len(os.sched_getaffinity(0)), torch.backends.cpu.get_cpu_capability())

    def set_num_threads(self, num_threads: int) -> None:
        """Threads of torch's own pool."""
        torch.set_num_threads(num_threads)

    def _cgroup_limits(self) -> Iterator[tuple[int, int, str]]:
        """(limit, bytes in use that cannot be dropped, name) of every enclosing group that has a limit."""
        try:
            lines = (self._root / "proc/self/cgroup").read_text().splitlines()
        except OSError:
            return
        mount = self._root / "sys/fs/cgroup"
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if not controllers:
                names = ("memory.max", "memory.current", "inactive_file", "cgroup v2 limit")
                yield from _limits(mount, path, names)
            elif "memory" in controllers.split(","):
                names = (
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    "total_inactive_file",
                    "cgroup v1 limit",
                )
                yield from _limits(mount / "memory", path, names)


def _limits(mount: Path, path: str, names: tuple[str, str, str, str]) -> Iterator[tuple[int, int, str]]:
    """Walks from the process's group to the mount; inside a container only the mount itself may be visible."""
    limit_name, usage_name, droppable_name, source = names
    inner = Path(path.strip("/"))
    for group in (mount / inner, *(mount / parent for parent in inner.parents)):
        limit, used = _number(group / limit_name), _number(group / usage_name)
        if limit is None or used is None or limit >= _UNLIMITED_BYTES:
            continue
        try:
            droppable = _key_values((group / "memory.stat").read_text()).get(droppable_name, 0)
        except OSError:
            droppable = 0
        yield limit, max(used - droppable, 0), source


def _number(path: Path) -> int | None:
    """A file's single number; None if it is missing or says "max"."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _key_values(text: str) -> dict[str, int]:
    """Lines "name number" or "Name: number kB"."""
    words = (line.replace(":", " ").split() for line in text.splitlines())
    return {word[0]: int(word[1]) for word in words if len(word) >= 2 and word[1].isdigit()}
