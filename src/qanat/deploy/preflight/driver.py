"""The driver of the host, the CANN of the image, and whether they go together."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.deploy.preflight.cards import npu_table
from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.known import (
    chip_named,
    driver_order,
    drivers,
    failure,
    good,
    unknown,
    warning,
)
from qanat.deploy.preflight.npu_smi import read_version_info
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.target import Target

DRIVER_FILE = "/usr/local/Ascend/driver/version.info"
CANN_FILES = (
    "/usr/local/Ascend/ascend-toolkit/latest/runtime/version.info",
    "/usr/local/Ascend/ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info",
    "/usr/local/Ascend/ascend-toolkit/latest/x86_64-linux/ascend_toolkit_install.info",
)
"""Where CANN says its version, best first."""


def driver_version(host: Host) -> str:
    """Version of the driver by npu-smi, which asks the loaded one, else by its file; empty if neither says."""
    return npu_table(host).driver or read_version_info(host.read(DRIVER_FILE) or "")


def cann_of(host: Host) -> str:
    """Version of the CANN that is installed here; empty if there is none."""
    for path in CANN_FILES:
        version = read_version_info(host.read(path) or "")
        if version:
            return version
    return ""


def check_version(host: Host, target: Target) -> Iterator[Result]:
    """Whether the driver's version can be read, and the tools agree on it."""
    in_file, in_tool = read_version_info(host.read(DRIVER_FILE) or ""), npu_table(host).driver
    if not in_file and not in_tool:
        yield unknown("driver-version", f"neither {DRIVER_FILE} nor npu-smi says a version")
    elif in_file and in_tool and driver_order(in_file) != driver_order(in_tool):
        yield warning("driver-version", f"{DRIVER_FILE} says {in_file}, npu-smi says {in_tool}")
    else:
        yield good("driver-version", f"driver {in_file or in_tool}")


def check_cann(host: Host, target: Target) -> Iterator[Result]:
    """Whether the driver is new enough for the CANN of the image, and for many graphs."""
    version = driver_version(host)
    cann = target.release.cann if target.release else target.plan.cann if target.plan else None
    names = [chip.name for chip in npu_table(host).chips]
    chip = chip_named(names[0]) if names else target.chip
    if not version:
        return
    if not cann:
        yield unknown(
            "driver-cann", f"driver {version}: which CANN it must serve is not said; give --image or a plan"
        )
        return
    support, order = drivers(cann), driver_order(version)
    if support is None or order is None:
        yield unknown("driver-cann", f"driver {version} beside CANN {cann}: not in the tables known here")
        return
    if chip is not None and chip.name not in support.chips:
        seen = f"driver {version} beside CANN {cann}: drivers of {chip.name} are numbered apart; see its release notes"
        yield unknown("driver-cann", seen)
        return
    oldest, recommended = driver_order(support.oldest), driver_order(support.recommended)
    if oldest is not None and order < oldest:
        seen = f"driver {version} is older than {support.oldest}, the oldest for CANN {cann}"
        is_sure = support.confidence != "unverified"
        yield failure("driver-cann", seen) if is_sure else warning("driver-cann", seen)
        return
    yield good("driver-cann", f"driver {version} serves CANN {cann} ({support.oldest} or newer)")
    if recommended is not None and order < recommended:
        seen = f"driver {version} is older than {support.recommended}, known to serve graphs with CANN {cann}"
        yield warning("driver-streams", seen)
    else:
        yield good("driver-streams", f"driver {version} is {support.recommended} or newer")


def check_plan_driver(host: Host, target: Target) -> Iterator[Result]:
    """Whether the driver is at least the one that the plan names."""
    wanted = target.plan.driver if target.plan else ""
    version = driver_version(host)
    needed, order = driver_order(wanted), driver_order(version)
    if needed is None or order is None:
        return
    if order < needed:
        yield warning("driver-version", f"the plan was made for driver {wanted} or newer, this is {version}")


def check_cann_version(host: Host, target: Target) -> Iterator[Result]:
    """Whether CANN is the one of the release, where the engine runs; a host's is of no use to containers."""
    found = cann_of(host)
    wanted = target.release.cann if target.release else None
    if not target.is_in_container and not target.is_from_source:
        return
    if not found:
        yield failure("cann-version", "no CANN below /usr/local/Ascend/ascend-toolkit/latest")
    elif wanted is None:
        yield unknown("cann-version", f"CANN {found}; give --image or a plan to compare it with")
    elif _plain(found) != _plain(wanted):
        yield failure(
            "cann-version",
            f"CANN {found}, release {target.release.name if target.release else ''} was built with {wanted}",
        )
    else:
        yield good("cann-version", f"CANN {found}")


def _plain(version: str) -> str:
    """The version without a build number behind it: 8.3.RC2.1 and 8.3.rc2 are one."""
    parts = version.lower().split(".")
    return ".".join(parts[:3])
