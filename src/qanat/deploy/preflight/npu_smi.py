"""Reads what npu-smi and hccn_tool print.

`npu-smi info` has one table with two lines a chip. Three layouts are known: A2 and A3 ("NPU Name | Health | Power",
"Chip Phy-ID | Bus-Id | AICore, Memory, HBM"; an A2 leaves out Phy-ID), 310P ("Chip Device", no HBM), and the 950
("NPU ID | Name | Health | ...", no chip number). A second table lists processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

HEALTH_WORDS = ("OK", "Warning", "Alarm", "Critical", "UNKNOWN")
_VERSION = re.compile(r"npu-smi\s+(\S+)\s+Version:\s*(\S+)")
_USAGE = re.compile(r"(\d+)\s*/\s*(\d+)")
_FIELD = re.compile(r"^\s*([^:]+?)\s*:\s*(.*?)\s*$")
_TLS = re.compile(r"tls switch\[(\d)\]")


@dataclass(frozen=True)
class NpuChip:
    """One NPU.

    Attributes:
        npu: number of the card.
        chip: number of the chip on it, 0 where a card has one.
        physical: number by which devices and hccn_tool know it: N of /dev/davinciN.
        name: such as 910B3, Ascend910, 310P3, Ascend950PR.
        health: OK, Warning, Alarm, Critical or UNKNOWN.
        bus: address on the PCI bus.
        used_mib: memory that is taken; of the 310P that of the card, of all others HBM.
        total_mib: memory that there is.
    """

    npu: int
    chip: int
    physical: int
    name: str
    health: str
    bus: str
    used_mib: int
    total_mib: int

    @property
    def free_mib(self) -> int:
        """Memory that is left."""
        return self.total_mib - self.used_mib


@dataclass(frozen=True)
class NpuProcess:
    """A process that holds memory of an NPU."""

    npu: int
    chip: int
    pid: int
    name: str
    used_mib: int


@dataclass(frozen=True)
class NpuTable:
    """All of `npu-smi info`; `driver` is what the tool calls its version, empty if it says none."""

    driver: str
    chips: tuple[NpuChip, ...]
    processes: tuple[NpuProcess, ...]


def read_info(text: str) -> NpuTable:
    """Reads `npu-smi info`; lines that are no part of a table are skipped."""
    version = _VERSION.search(text)
    chips: list[NpuChip] = []
    processes: list[NpuProcess] = []
    upper: list[str] | None = None
    is_of_processes = False
    for cells in _rows(text):
        heading = " ".join(cells).lower()
        if "process id" in heading:
            is_of_processes = True
        elif is_of_processes:
            processes += _process(cells)
        elif upper is None and _is_upper(cells):
            upper = cells
        elif upper is not None:
            chip = _chip(upper, cells)
            if chip is not None:
                chips.append(chip)
            upper = None
    return NpuTable(version.group(2) if version else "", tuple(chips), tuple(processes))


def read_fields(text: str) -> dict[str, str]:
    """Reads `name : value` lines, such as those of `npu-smi info -t board`, by name."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        match = _FIELD.match(line)
        if match is not None:
            fields.setdefault(match.group(1), match.group(2))
    return fields


def read_link(text: str) -> str:
    """State in "link status: UP", upper case; empty if the text has none."""
    return read_fields(text).get("link status", "").upper()


def read_net_health(text: str) -> str:
    """State in "net health status: Success"; empty if the text has none."""
    return read_fields(text).get("net health status", "")


def read_npu_address(text: str) -> str:
    """Address in "ipaddr:29.1.2.3"; empty if the text has none."""
    return read_fields(text).get("ipaddr", "")


def read_tls(text: str) -> str:
    """Switch in "dev_id:0, tls switch[0](0:disable, 1:enable)": "0", "1", or empty."""
    match = _TLS.search(text)
    return match.group(1) if match else ""


def read_version_info(text: str) -> str:
    """Driver version in a version.info: `package_version` where there is one, else `Version`."""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return (fields.get("package_version") or fields.get("Version") or fields.get("version") or "").strip()


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("|") and line.endswith("|") and len(line) > 1:
            yield [cell.strip() for cell in line[1:-1].split("|")]


def _is_upper(cells: list[str]) -> bool:
    """Whether cells are the first line of a chip: a number, a name, and a word for its health."""
    words = " ".join(cells[:-1]).split()
    return len(words) >= 3 and words[0].isdigit() and words[-1] in HEALTH_WORDS


def _chip(upper: list[str], lower: list[str]) -> NpuChip | None:
    number, *name, health = " ".join(upper[:-1]).split()
    usages = _USAGE.findall(lower[-1])
    numbers = lower[0].split()
    if not usages or not all(word.isdigit() for word in numbers):
        return None
    used, total = max(usages, key=lambda usage: int(usage[1]))
    return NpuChip(
        npu=int(number),
        chip=int(numbers[0]) if numbers else 0,
        # Where the table has no column for it, cards have one chip, and the card's number is the device's.
        physical=int(numbers[1]) if len(numbers) > 1 else int(number),
        name=" ".join(name),
        health=health,
        bus=lower[-2] if len(lower) > 1 else "",
        used_mib=int(used),
        total_mib=int(total),
    )


def _process(cells: list[str]) -> Iterator[NpuProcess]:
    numbers = cells[0].split()
    is_row = len(cells) >= 4 and numbers and all(word.isdigit() for word in numbers)
    if is_row and cells[1].isdigit() and cells[-1].isdigit():
        chip = int(numbers[1]) if len(numbers) > 1 else 0
        yield NpuProcess(int(numbers[0]), chip, int(cells[1]), cells[2], int(cells[-1]))
