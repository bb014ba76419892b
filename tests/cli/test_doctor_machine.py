"""What `qanat doctor` makes of machines that are not this one."""

from __future__ import annotations

from pathlib import Path

from qanat.cli.doctor_checks.check import Check, size_text
from qanat.cli.doctor_checks.machine import check_machine


def machine(root: Path, files: dict[str, str], preload: str = "") -> dict[str, Check]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return {check.name: check for check in check_machine({"LD_PRELOAD": preload}, root)}


def test_pages_allocator_quota_and_little_memory(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        {
            "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
            "proc/self/maps": "7f00-7f01 r-xp 0 08:01 5 /usr/lib/libjemalloc.so.2\n",
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
            "proc/meminfo": "MemTotal: 4000000 kB\nMemAvailable: 500000 kB\n",
        },
        preload="/usr/lib/libjemalloc.so.2",
    )
    assert found["huge pages"].state.value == "warning" and "madvise" in found["huge pages"].advice
    assert found["allocator"].message == "jemalloc, preloaded"
    assert found["cores"].state.value == "note" and found["cores"].facts["quota"] == 0.5
    assert found["cores"].facts["num_cores"] == 1
    assert found["memory"].state.value == "warning"
    assert found["memory"].facts["available_bytes"] == 500000 * 1024


def test_a_system_without_the_setting_is_no_worse(tmp_path: Path) -> None:
    found = machine(tmp_path, {})
    assert found["huge pages"].state.value == "note"
    assert found["allocator"].state.value == "ok"


def test_sizes_for_people() -> None:
    assert [size_text(size) for size in (12, 2048, 3 * 2**20, 5 * 2**29)] == [
        "12 bytes",
        "2.0 KiB",
        "3.0 MiB",
        "2.5 GiB",
    ]
