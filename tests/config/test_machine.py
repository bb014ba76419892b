from __future__ import annotations

from pathlib import Path

import pytest

from qanat.config.machine import read_machine

GIB = 2**30


class FakeRoot:
    """A folder that looks like / of a Linux machine."""

    def __init__(self, folder: Path, available_gib: float = 16) -> None:
        self.folder = folder
        kib = int(available_gib * 2**20)
        self.write("proc/meminfo", f"MemTotal: {32 * 2**20} kB\nMemFree: 1 kB\nMemAvailable: {kib} kB\n")
        self.write(
            "proc/cpuinfo",
            "processor: 0\nmodel name : Test CPU\nflags : fpu avx2 avx512f\n\nmodel name : X\n",
        )

    def write(self, path: str, text: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def topology(self, cores: list[int]) -> None:
        for cpu, core in enumerate(cores):
            self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/core_id", str(core))
            self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", "0")


def test_a_machine_without_limits(tmp_path: Path) -> None:
    FakeRoot(tmp_path)
    machine = read_machine(tmp_path, frozenset({0, 1, 2}))
    assert (machine.total_bytes, machine.available_bytes) == (32 * GIB, 16 * GIB)
    assert machine.memory_bound == "free memory of the machine"
    assert machine.num_cores == 3
    assert machine.cpu_model == "Test CPU"
    assert machine.instruction_sets == ("AVX2", "AVX-512")


def test_version_2_counts_the_tightest_group_without_reclaimable_pages(tmp_path: Path) -> None:
    root = FakeRoot(tmp_path)
    root.write("proc/self/cgroup", "0::/pod/container\n")
    for group, limit, usage, inactive in (("pod", 8, 3, 0), ("pod/container", 6, 4, 3)):
        base = f"sys/fs/cgroup/{group}"
        root.write(f"{base}/memory.max", str(limit * GIB))
        root.write(f"{base}/memory.current", str(usage * GIB))
        root.write(f"{base}/memory.stat", f"anon 1\ninactive_file {inactive * GIB}\n")
    machine = read_machine(tmp_path, frozenset({0}))
    assert machine.available_bytes == 5 * GIB  # both have 5 left: 8 - 3 and 6 - (4 - 3)
    root.write("sys/fs/cgroup/pod/memory.max", str(4 * GIB))
    machine = read_machine(tmp_path, frozenset({0}))
    assert machine.available_bytes == 1 * GIB
    assert machine.memory_bound == "limit of the control group"


def test_a_group_that_is_full_leaves_nothing(tmp_path: Path) -> None:
    root = FakeRoot(tmp_path)
    root.write("proc/self/cgroup", "0::/\n")
    root.write("sys/fs/cgroup/memory.max", str(GIB))
    root.write("sys/fs/cgroup/memory.current", str(2 * GIB))
    assert read_machine(tmp_path, frozenset({0})).available_bytes == 0


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    root = FakeRoot(tmp_path)
    root.write("proc/self/cgroup", "0::/a\n4:memory:/b\n1:cpu:/b\n")
    root.write("sys/fs/cgroup/a/memory.max", "max")
    root.write("sys/fs/cgroup/a/cpu.max", "max 100000")
    root.write("sys/fs/cgroup/memory/b/memory.limit_in_bytes", str(2**63 - 4096))
    root.write("sys/fs/cgroup/memory/b/memory.usage_in_bytes", "0")
    root.write("sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "-1")
    root.write("sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000")
    machine = read_machine(tmp_path, frozenset({0, 1}))
    assert (machine.available_bytes, machine.num_cores) == (16 * GIB, 2)


def test_version_1_in_a_container_lies_at_the_top(tmp_path: Path) -> None:
    """Inside a container /proc shows the host's path, but the group's files are mounted at the top."""
    root = FakeRoot(tmp_path)
    root.write("proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n")
    root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", str(3 * GIB))
    root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", str(2 * GIB))
    root.write("sys/fs/cgroup/memory/memory.stat", f"total_inactive_file {GIB}\n")
    root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000")
    root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000")
    machine = read_machine(tmp_path, frozenset(range(8)))
    assert (machine.available_bytes, machine.num_cores) == (2 * GIB, 2)


@pytest.mark.parametrize(
    ("quota", "cores"), [("50000 100000", 1), ("150000 100000", 1), ("400000 100000", 4)]
)
def test_the_quota_bounds_the_cores(tmp_path: Path, quota: str, cores: int) -> None:
    root = FakeRoot(tmp_path)
    root.write("proc/self/cgroup", "0::/\n")
    root.write("sys/fs/cgroup/cpu.max", quota)
    assert read_machine(tmp_path, frozenset(range(8))).num_cores == cores


def test_second_threads_of_a_core_do_not_count(tmp_path: Path) -> None:
    root = FakeRoot(tmp_path)
    root.topology([0, 1, 2, 3, 0, 1, 2, 3])
    assert read_machine(tmp_path, frozenset(range(8))).num_cores == 4
    assert read_machine(tmp_path, frozenset({0, 4})).num_cores == 1


def test_this_machine() -> None:
    machine = read_machine()
    assert machine.num_cores >= 1
    assert 0 < machine.available_bytes <= machine.total_bytes
