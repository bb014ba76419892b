"""What the machine gives to this process: processors, memory, allocator, files, a place for sockets."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from qanat.cli.doctor_checks.check import Check, State, size_text
from qanat.config.huge_pages import PRELOAD_VARIABLE, allocator_in, huge_page_setting, loaded_allocator
from qanat.config.machine import MachineInfo, cpu_quota, read_machine
from qanat.config.processors import in_binding_order, number_ranges, usable_processors
from qanat.core.affinity import can_bind

LITTLE_MEMORY_BYTES = 2**30
"""Little for any model but the demo."""
FEW_OPEN_FILES = 4096


def check_machine(variables: Mapping[str, str], root: Path = Path("/")) -> Iterator[Check]:
    """Each part of the machine.

    Args:
        variables: of the environment.
        root: where `proc` and `sys` lie.
    """
    machine = read_machine(root)
    yield _processor(machine)
    yield _cores(machine, root)
    yield _memory(machine)
    yield _huge_pages(root)
    yield _allocator(variables, root)
    yield _open_files()
    yield _temporary_folder()


def _processor(machine: MachineInfo) -> Check:
    sets = ", ".join(machine.instruction_sets) or "no vector extensions known"
    facts = {"model": machine.cpu_model, "instruction_sets": list(machine.instruction_sets)}
    return Check(
        "processor", State.OK, f"{machine.cpu_model or 'unknown'}, {machine.platform}: {sets}", facts=facts
    )


def _cores(machine: MachineInfo, root: Path) -> Check:
    """How many cores there are for threads, and why not more."""
    processors, quota = usable_processors(root), cpu_quota(root)
    online = os.cpu_count() or 1
    numbers = [processor.number for processor in processors]
    num_cores = len({processor.core for processor in processors})
    facts = {
        "num_cores": machine.num_cores,
        "processors": numbers,
        "num_online": online,
        "quota": quota,
        "binding_order": in_binding_order(processors),
    }
    order = ",".join(map(str, in_binding_order(processors)))
    more = (
        (f"--cpu-binding takes them in the order {order}",)
        if can_bind()
        else ("--cpu-binding has no effect here",)
    )
    parts = [f"{machine.num_cores} for threads", f"processors {number_ranges(numbers)} of {online}"]
    if num_cores < len(numbers):
        parts.append(f"{num_cores} cores with several hardware threads each")
    if quota is not None:
        parts.append(f"a quota of {quota:g}")
    if quota is not None and quota < num_cores:
        advice = "threads beyond the quota are stopped for part of each period: raise the container's limit"
        return Check("cores", State.NOTE, ", ".join(parts), advice, more, facts)
    if len(numbers) < online:
        return Check(
            "cores",
            State.NOTE,
            ", ".join(parts),
            "the affinity of this process leaves the others out",
            more,
            facts,
        )
    return Check("cores", State.OK, ", ".join(parts), more=more, facts=facts)


def _memory(machine: MachineInfo) -> Check:
    facts = {
        "total_bytes": machine.total_bytes,
        "available_bytes": machine.available_bytes,
        "bound": machine.memory_bound,
    }
    available, total = size_text(machine.available_bytes), size_text(machine.total_bytes)
    message = f"{available} available of {total} ({machine.memory_bound})"
    if machine.available_bytes < LITTLE_MEMORY_BYTES:
        return Check(
            "memory", State.WARNING, message, "free some, or raise the container's limit", facts=facts
        )
    return Check("memory", State.OK, message, facts=facts)


def _huge_pages(root: Path) -> Check:
    setting = huge_page_setting(root)
    facts = {"transparent_hugepage": setting}
    if not setting:
        return Check("huge pages", State.NOTE, "this system has no setting for them", facts=facts)
    if setting == "never":
        advice = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root: weights are read faster then"
        return Check("huge pages", State.WARNING, "transparent_hugepage is never", advice, facts=facts)
    return Check(
        "huge pages", State.OK, f"transparent_hugepage is {setting}: weights lie on huge pages", facts=facts
    )


def _allocator(variables: Mapping[str, str], root: Path) -> Check:
    """Whether an allocator is preloaded, and has come."""
    loaded, preload = loaded_allocator(root), variables.get(PRELOAD_VARIABLE, "")
    facts = {"loaded": loaded, "preload": preload}
    if loaded:
        return Check("allocator", State.OK, f"{loaded}, preloaded", facts=facts)
    if wanted := allocator_in(preload):
        advice = f"correct the path in {PRELOAD_VARIABLE}; the system's loader says which one it did not find"
        return Check(
            "allocator",
            State.WARNING,
            f"{wanted} is in {PRELOAD_VARIABLE} and not loaded",
            advice,
            facts=facts,
        )
    return Check("allocator", State.OK, "the C library's own", facts=facts)


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    facts = {"soft": soft, "hard": hard}
    if 0 <= hard < FEW_OPEN_FILES:
        message = f"a process may have {hard} open, and each connection is one"
        return Check(
            "open files",
            State.WARNING,
            message,
            "raise the hard limit (ulimit -Hn) for many clients",
            facts=facts,
        )
    allowed = "any number" if hard == resource.RLIM_INFINITY else f"{hard}"
    return Check("open files", State.OK, f"a process may have {allowed} open", facts=facts)


def _temporary_folder() -> Check:
    """Processes of one engine talk over sockets in a folder that is made there."""
    try:
        with tempfile.TemporaryDirectory(prefix="qanat-doctor-") as folder:
            (Path(folder) / "probe").write_bytes(b"qanat")
            place, free_bytes = str(Path(folder).parent), shutil.disk_usage(folder).free
    except OSError as error:
        advice = "set TMPDIR to a folder on a local disk that you can write to"
        return Check("temporary folder", State.FAULT, f"nothing can be written: {error}", advice)
    facts = {"folder": place, "free_bytes": free_bytes}
    return Check("temporary folder", State.OK, f"{place}, {size_text(free_bytes)} free", facts=facts)
