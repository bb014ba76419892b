"""NPUs: there, of the right kind, enough, healthy, free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.known import chip_named, failure, good, threshold, unknown, warning
from qanat.deploy.preflight.npu_smi import NpuChip, NpuTable, read_fields, read_info
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.target import Target

MIB = 2**20


def npu_table(host: Host) -> NpuTable:
    """What `npu-smi info` shows; an empty table where it cannot be run."""
    return read_info(host.run("npu-smi", "info").text)


def used_chips(table: NpuTable, target: Target) -> tuple[NpuChip, ...]:
    """The NPUs that the node uses: all, where nothing says which."""
    if not target.npus:
        return table.chips
    return tuple(chip for chip in table.chips if chip.physical in target.npus)


def check_found(host: Host, target: Target) -> Iterator[Result]:
    """Whether npu-smi runs and shows NPUs."""
    output = host.run("npu-smi", "info")
    if output.problem == "not found":
        devices = [name for name in host.names("/dev") or () if name.removeprefix("davinci").isdigit()]
        if devices:
            yield failure("npus-found", f"/dev has {len(devices)} devices of NPUs, but there is no npu-smi")
        else:
            yield unknown(
                "npus-found", "npu-smi is not installed and /dev has no NPU: nothing about cards was checked"
            )
        return
    if output.problem == "timed out":
        yield failure(
            "npus-found", "npu-smi info does not answer", fix="Restart the host; read dmesg for the driver."
        )
        return
    table = read_info(output.text)
    if not table.chips:
        yield failure("npus-found", f"npu-smi shows no NPU: {first_line(output.text)}")
        return
    names = ", ".join(dict.fromkeys(chip.name for chip in table.chips))
    cards = len({chip.npu for chip in table.chips})
    yield good(
        "npus-found",
        f"{len(table.chips)} NPUs on {cards} cards ({names}), driver {table.driver or 'unknown'}",
    )


def check_kind(host: Host, target: Target) -> Iterator[Result]:
    """Whether the chips are those of the plan and the image."""
    table = npu_table(host)
    for name in dict.fromkeys(chip.name for chip in table.chips):
        chip = chip_named(name)
        if chip is None:
            yield unknown("npu-chip", f"npu-smi calls the chip {name}, which is not known here")
        elif target.chip is None:
            yield good("npu-chip", f"{name} is of the {chip.name} family")
        elif target.chip.family != chip.family:
            meant = "the plan" if target.plan else "the image"
            yield failure(
                "npu-chip", f"npu-smi shows {name} ({chip.name}), {meant} is for {target.chip.name}"
            )
        else:
            yield good("npu-chip", f"{name} fits {target.chip.name}")


def check_count(host: Host, target: Target) -> Iterator[Result]:
    """Whether the NPUs of the plan are all there."""
    table = npu_table(host)
    if not table.chips or not target.npus:
        return
    there = {chip.physical for chip in table.chips}
    missing = [number for number in target.npus if number not in there]
    if missing:
        seen = f"the plan uses NPUs {_numbers(target.npus)}, missing: {_numbers(missing)}; npu-smi shows {len(there)}"
        yield failure("npu-count", seen)
    else:
        yield good("npu-count", f"all {len(target.npus)} NPUs of the plan are there, of {len(there)}")


def check_health(host: Host, target: Target) -> Iterator[Result]:
    """Health of the NPUs that are used."""
    chips = used_chips(npu_table(host), target)
    ill = [chip for chip in chips if chip.health != "OK"]
    for chip in ill:
        seen = f"NPU {chip.physical} (card {chip.npu}, chip {chip.chip}) reports {chip.health}"
        # A warning leaves the chip usable; everything above does not.
        yield warning("npu-health", seen) if chip.health == "Warning" else failure("npu-health", seen)
    if chips and not ill:
        yield good("npu-health", f"{len(chips)} NPUs report OK")


def check_processes(host: Host, target: Target) -> Iterator[Result]:
    """Whether anybody else is on the NPUs."""
    table = npu_table(host)
    used = {(chip.npu, chip.chip): chip.physical for chip in used_chips(table, target)}
    if not used:
        return
    taken = [process for process in table.processes if (process.npu, process.chip) in used]
    for process in taken:
        number = used[(process.npu, process.chip)]
        seen = f"NPU {number}: process {process.pid} ({process.name}) holds {process.used_mib} MiB"
        yield failure("npu-processes", seen)
    if not taken:
        yield good("npu-processes", f"no process on {len(used)} NPUs")


def check_memory(host: Host, target: Target) -> Iterator[Result]:
    """Whether enough memory is free for the start (MEM004)."""
    chips = used_chips(npu_table(host), target)
    if not chips:
        return
    needed_mib, how = _needed_mib(target)
    if needed_mib is None:
        yield from _held_memory(chips)
        return
    short = [chip for chip in chips if chip.free_mib < needed_mib]
    for chip in short:
        seen = f"NPU {chip.physical}: {chip.free_mib} MiB of {chip.total_mib} are free, the start needs {needed_mib}"
        yield failure("npu-memory", f"{seen} ({how})")
    outside = _outside_mib(target)
    least = min(chip.free_mib for chip in chips)
    if short:
        return
    if least < needed_mib + outside:
        seen = f"{least} MiB are free: enough for the start ({needed_mib}), not for {outside} MiB outside the budget"
        yield warning(
            "npu-memory",
            seen,
            "Communication buffers and graphs lie outside --gpu-memory-utilization and are taken later.",
            "Lower --gpu-memory-utilization.",
        )
    else:
        yield good(
            "npu-memory", f"at least {least} MiB are free on each NPU, {needed_mib + outside} are needed"
        )


def check_firmware(host: Host, target: Target) -> Iterator[Result]:
    """What npu-smi says of each card's firmware."""
    table = npu_table(host)
    cards = sorted({chip.npu for chip in used_chips(table, target)})
    versions: dict[str, list[int]] = {}
    for card in cards:
        fields = read_fields(host.run("npu-smi", "info", "-t", "board", "-i", str(card)).text)
        versions.setdefault(fields.get("Firmware Version", "unknown"), []).append(card)
        if fields.get("Compatibility", "OK") == "NOK":
            yield failure("npu-firmware", f"card {card}: npu-smi calls driver and firmware incompatible")
        if fields.get("Faulty Chip Count", "0") not in ("0", "NA"):
            yield failure("npu-health", f"card {card} has {fields['Faulty Chip Count']} faulty chips")
    if not cards:
        return
    if set(versions) == {"unknown"}:
        yield unknown("npu-firmware", "npu-smi does not tell the firmware here; root on the host can see it")
    elif len(versions) > 1:
        told = "; ".join(f"{version} on card {_numbers(on)}" for version, on in sorted(versions.items()))
        yield warning("npu-firmware", f"cards have different firmware: {told}")
    else:
        yield good("npu-firmware", f"firmware {next(iter(versions))} on all cards")


def first_line(text: str) -> str:
    """The first line that says something, or "no output"."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no output")


def _held_memory(chips: Sequence[NpuChip]) -> Iterator[Result]:
    idle_mib = int(threshold("idle-npu-memory"))
    # The memory of a 310P card is shared with its own system, so what is taken there says nothing.
    held = [chip for chip in chips if chip.used_mib > idle_mib and not chip.name.startswith("310")]
    for chip in held:
        yield warning("npu-memory", f"NPU {chip.physical}: {chip.used_mib} MiB of {chip.total_mib} are taken")
    if not held:
        yield good("npu-memory", f"at least {min(chip.free_mib for chip in chips)} MiB are free on each NPU")


def _needed_mib(target: Target) -> tuple[int | None, str]:
    """Memory that must be free at the start, and how it comes about; None if nothing says."""
    utilization = target.flag("gpu-memory-utilization")
    role = target.role
    if role is not None and role.memory.budget_bytes > 0:
        return role.memory.budget_bytes // MIB, f"--gpu-memory-utilization {utilization or 'by default'}"
    return None, ""


def _outside_mib(target: Target) -> int:
    role = target.role
    items = role.memory.items if role else ()
    return sum(item.size_bytes for item in items if not item.is_in_budget) // MIB


def _numbers(numbers: Sequence[int]) -> str:
    """Numbers as ranges: "0-3, 8"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
