"""What this machine can give to the process: cores, memory, instruction sets. Reads /proc and /sys; no torch.

Memory: the smaller of the kernel's MemAvailable and what is left below each limit of the control groups (version 1 or
2) that the process is in. A group's use counts without its inactive file pages, which the kernel gives back at need.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qanat.config.processors import in_binding_order, usable_processors
from qanat.config.system_files import read_system_file

SHOWN_INSTRUCTION_SETS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx_vnni": "AVX-VNNI",
    "amx_int8": "AMX int8",
    "amx_bf16": "AMX bf16",
    "asimd": "NEON",
    "asimddp": "dotprod",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "SVE",
}
"""Names of the kernel's CPU flags that matter to kernels."""

_NO_LIMIT_BYTES = 2**60
"""Version 1 writes a huge number where there is no limit."""


@dataclass(frozen=True)
class MachineInfo:
    """The machine as this process may use it.

    Attributes:
        platform: "cpu" with the architecture, such as "cpu (x86_64)".
        cpu_model: name of the processor, "" if unknown.
        num_cores: cores that the process may use: affinity, without the second threads of a core, and the quota.
        instruction_sets: those of `SHOWN_INSTRUCTION_SETS` that it has.
        total_bytes: memory of the machine.
        available_bytes: memory that the process can still take.
        memory_bound: what bounds it: "free memory of the machine" or "limit of the control group".
        binding_order: numbers of the processors that the process may use, second threads of cores last.
    """

    platform: str
    cpu_model: str
    num_cores: int
    instruction_sets: tuple[str, ...]
    total_bytes: int
    available_bytes: int
    memory_bound: str
    binding_order: tuple[int, ...] = ()


def read_machine(root: Path = Path("/"), affinity: frozenset[int] | None = None) -> MachineInfo:
    """Looks at this machine.

    Args:
        root: where `proc` and `sys` lie.
        affinity: CPUs that the process may run on; asked of the system unless given.
    """
    groups = [Path(group) for group in _groups(root)]
    memory = _key_values(root / "proc/meminfo")
    total_bytes = memory.get("MemTotal", 0) * 1024 or _physical_bytes()
    available_bytes = memory.get("MemAvailable", 0) * 1024 or total_bytes
    bound = "free memory of the machine"
    for group in groups:
        left = _memory_left(group)
        if left is not None and left < available_bytes:
            available_bytes, bound = left, "limit of the control group"
    info = _cpu_info(root)
    return MachineInfo(
        platform=f"cpu ({platform.machine()})",
        cpu_model=info.get("model name", ""),
        num_cores=_num_cores(root, affinity, groups),
        instruction_sets=_instruction_sets(info),
        total_bytes=total_bytes,
        available_bytes=available_bytes,
        memory_bound=bound,
        binding_order=tuple(in_binding_order(usable_processors(root, affinity))),
    )


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Processors' worth of time that the control groups allow; None for no bound."""
    quotas = [quota for quota in map(_cpu_quota, map(Path, _groups(root))) if quota is not None]
    return min(quotas, default=None)


def _num_cores(root: Path, affinity: frozenset[int] | None, groups: list[Path]) -> int:
    """Distinct cores among the CPUs, but no more than the quota pays for, and at least one."""
    cores = {processor.core for processor in usable_processors(root, affinity)}
    quotas = [quota for quota in map(_cpu_quota, groups) if quota is not None]
    return max(1, min([len(cores), *(int(quota) for quota in quotas)]))


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the control groups that bound the process, from its own up to the root, for both versions."""
    for line in read_system_file(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            homes = [root / "sys/fs/cgroup"]
        elif "memory" in controllers.split(","):
            homes = [root / "sys/fs/cgroup/memory"]
        elif "cpu" in controllers.split(","):
            homes = [root / "sys/fs/cgroup/cpu", root / "sys/fs/cgroup/cpu,cpuacct"]
        else:
            continue
        for home in homes:
            folder = Path(os.path.normpath(f"{home}/{path.lstrip('/')}"))
            # In a container the path may be the host's, and the group then lies at the top.
            yield from [folder, *folder.parents] if home in [folder, *folder.parents] else [home]


def _memory_left(group: Path) -> int | None:
    """Bytes below a group's limit, None if it has none."""
    for limit_name, usage_name, inactive in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, usage = read_system_file(group / limit_name), read_system_file(group / usage_name)
        if limit.isdigit() and usage.isdigit() and int(limit) < _NO_LIMIT_BYTES:
            reclaimable = _key_values(group / "memory.stat").get(inactive, 0)
            return max(0, int(limit) - max(0, int(usage) - reclaimable))
    return None


def _cpu_quota(group: Path) -> float | None:
    """CPUs that a group's quota pays for, None if it has none."""
    quota, _, period = read_system_file(group / "cpu.max").partition(" ")
    if not quota:
        quota, period = (
            read_system_file(group / "cpu.cfs_quota_us"),
            read_system_file(group / "cpu.cfs_period_us"),
        )
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _cpu_info(root: Path) -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo."""
    info: dict[str, str] = {}
    for line in read_system_file(root / "proc/cpuinfo").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            info.setdefault(key.strip(), value.strip())
    return info


def _instruction_sets(info: dict[str, str]) -> tuple[str, ...]:
    present = f"{info.get('flags', '')} {info.get('Features', '')}".split()
    return tuple(name for flag, name in SHOWN_INSTRUCTION_SETS.items() if flag in present)


def _physical_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _key_values(path: Path) -> dict[str, int]:
    """Lines of a name and a number, as in /proc/meminfo and memory.stat."""
    values = {}
    for line in read_system_file(path).splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdigit():
            values[words[0]] = int(words[1])
    return values
