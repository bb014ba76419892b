"""Memory limits of hosts and containers, on made-up /proc and /sys trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from qanat.platforms.base import Platform
from qanat.platforms.cpu import CpuPlatform

GIB = 2**30


class Host:
    """Writes the files that the platform reads."""

    def __init__(self, root: Path, total: int = 64 * GIB, available: int = 40 * GIB) -> None:
        self.root = root
        self.write("proc/meminfo", f"MemTotal: {total // 1024} kB\nMemAvailable: {available // 1024} kB\n")

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def group_v2(self, path: str, limit: int | str, used: int = 0, droppable: int = 0) -> None:
        self.write(f"sys/fs/cgroup/{path}/memory.max", f"{limit}\n")
        self.write(f"sys/fs/cgroup/{path}/memory.current", f"{used}\n")
        self.write(f"sys/fs/cgroup/{path}/memory.stat", f"anon 1\ninactive_file {droppable}\n")

    def group_v1(self, path: str, limit: int, used: int = 0, droppable: int = 0) -> None:
        self.write(f"sys/fs/cgroup/memory/{path}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"sys/fs/cgroup/memory/{path}/memory.usage_in_bytes", f"{used}\n")
        self.write(f"sys/fs/cgroup/memory/{path}/memory.stat", f"total_inactive_file {droppable}\n")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_without_limits(host: Host) -> None:
    memory = CpuPlatform(host.root).memory()
    assert (memory.total_bytes, memory.available_bytes) == (64 * GIB, 40 * GIB)
    assert memory.source == "free memory of the machine"


def test_v2_limit(host: Host) -> None:
    host.write("proc/self/cgroup", "0::/app.slice/run\n")
    host.group_v2("app.slice/run", 8 * GIB, used=3 * GIB)
    memory = CpuPlatform(host.root).memory()
    assert (memory.total_bytes, memory.available_bytes) == (64 * GIB, 5 * GIB)
    assert memory.source == "limit of the control group"


def test_page_cache_that_can_be_dropped_counts_as_free(host: Host) -> None:
    """A mapped checkpoint fills the group's page cache; it must not look like memory in use."""
    host.write("proc/self/cgroup", "0::/\n")
    host.group_v2("", 8 * GIB, used=7 * GIB, droppable=6 * GIB)
    assert CpuPlatform(host.root).memory().available_bytes == 7 * GIB


def test_the_tightest_enclosing_group_counts(host: Host) -> None:
    host.write("proc/self/cgroup", "0::/outer/inner\n")
    host.group_v2("outer/inner", "max", used=GIB)
    host.group_v2("outer", 4 * GIB, used=2 * GIB)
    assert CpuPlatform(host.root).memory().available_bytes == 2 * GIB


def test_inside_a_container_only_the_mount_is_visible(host: Host) -> None:
    host.write("proc/self/cgroup", "0::/kubepods/pod1/abc\n")
    host.group_v2("", 6 * GIB, used=GIB)
    assert CpuPlatform(host.root).memory().available_bytes == 5 * GIB


def test_v1_limit(host: Host) -> None:
    host.write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n")
    host.group_v1("docker/abc", 10 * GIB, used=9 * GIB, droppable=4 * GIB)
    memory = CpuPlatform(host.root).memory()
    assert (memory.total_bytes, memory.available_bytes) == (64 * GIB, 5 * GIB)
    assert memory.source == "limit of the control group"


def test_v1_without_a_limit(host: Host) -> None:
    host.write("proc/self/cgroup", "4:memory:/\n")
    host.group_v1("", 0x7FFFFFFFFFFFF000, used=GIB)
    assert CpuPlatform(host.root).memory().source == "free memory of the machine"


def test_a_limit_above_what_the_host_has_is_none(host: Host) -> None:
    host.write("proc/self/cgroup", "0::/\n")
    host.group_v2("", 500 * GIB, used=GIB)
    memory = CpuPlatform(host.root).memory()
    assert (memory.total_bytes, memory.available_bytes) == (64 * GIB, 40 * GIB)


def test_over_the_limit_means_nothing_left(host: Host) -> None:
    host.write("proc/self/cgroup", "0::/\n")
    host.group_v2("", GIB, used=2 * GIB)
    assert CpuPlatform(host.root).memory().available_bytes == 0


def test_this_machine() -> None:
    platform: Platform = CpuPlatform()
    memory, capabilities = platform.memory(), platform.capabilities()
    assert 0 < memory.available_bytes <= memory.total_bytes
    assert capabilities.num_cores >= 1
    assert capabilities.instruction_set
    assert (platform.name, platform.device.type, platform.collectives) == ("cpu", "cpu", "gloo")
