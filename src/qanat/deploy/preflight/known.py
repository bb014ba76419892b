"""What the knowledge base says to the checks of a host."""

from __future__ import annotations

import re
from collections.abc import Mapping

from qanat.deploy.knowledge.kinds.chips import Chip, DriverSupport
from qanat.deploy.knowledge.kinds.hosts import HostCheck, HostSetting
from qanat.deploy.knowledge.kinds.releases import KnownPath
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.preflight.result import Result, Status

_DRIVER = re.compile(r"(\d+)\.(\d+)(?:\.(rc)?(\d+))?(?:\.(\d+))?", re.IGNORECASE)


def checks() -> Mapping[str, HostCheck]:
    """All checks by id, in the order of reports."""
    return load_knowledge().tables["host_checks"].entries


def settings() -> Mapping[str, HostSetting]:
    """Kernel settings by name."""
    return load_knowledge().tables["host_settings"].entries


def threshold(name: str) -> float:
    """A number that checks compare with, in the unit of its entry."""
    return load_knowledge().threshold("host_thresholds", name)


def ray_port() -> int:
    """The port that rendered scripts start Ray on."""
    return int(load_knowledge().threshold("container_thresholds", "ray-port"))


def drivers(cann: str) -> DriverSupport | None:
    """Drivers for a version of CANN such as 8.5.1; None if its series is not known."""
    series = ".".join(cann.split(".")[:2])
    return load_knowledge().tables["drivers"].entries.get(series)


def paths(use: str, family: str | None) -> tuple[str, ...]:
    """Paths of hosts or images that have a use; those of a family of chips, or of any if it is not known."""
    entries: Mapping[str, KnownPath] = load_knowledge().tables["known_paths"].entries
    return tuple(
        entry.name
        for entry in entries.values()
        if entry.use == use and (not entry.families or family in entry.families)
    )


def chip_named(name: str) -> Chip | None:
    """The chip that npu-smi calls by this name; None if the name is not known."""
    knowledge = load_knowledge()
    for pattern, entry in knowledge.tables["device_names"].entries.items():
        if re.fullmatch(pattern, name, re.IGNORECASE):
            return next((chip for chip in knowledge.chips if chip.name == entry.chip), None)
    return None


def driver_order(version: str) -> tuple[int, ...] | None:
    """Sorts drivers such as 24.1.rc3.7, 25.3.rc1, 25.5.1; a candidate comes before its release. None if unreadable."""
    match = _DRIVER.fullmatch(version.strip())
    if match is None:
        return None
    year, minor, candidate, third, fourth = match.groups()
    return int(year), int(minor), 0 if candidate else 1, int(third or 0), int(fourth or 0)


def good(check: str, seen: str) -> Result:
    """A result that asks for nothing."""
    return Result(check=check, status=Status.OK, seen=seen)


def unknown(check: str, seen: str) -> Result:
    """A result that could not be had."""
    return Result(check=check, status=Status.UNKNOWN, seen=seen)


def warning(check: str, seen: str, why: str = "", fix: str = "") -> Result:
    """A result that is worth a look; reason and remedy are those of the check unless given."""
    return _bad(Status.WARN, check, seen, why, fix)


def failure(check: str, seen: str, why: str = "", fix: str = "") -> Result:
    """A result that would let the start or the service fail; reason and remedy are those of the check unless given."""
    return _bad(Status.FAIL, check, seen, why, fix)


def _bad(status: Status, check: str, seen: str, why: str, fix: str) -> Result:
    entry = checks()[check]
    return Result(
        check=check, status=status, seen=seen, why=why or entry.why, fix=fix or entry.fix, source=entry.source
    )
