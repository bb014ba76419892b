"""All checks of one host, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qanat.deploy.preflight import (
    cards,
    container,
    devices,
    driver,
    links,
    machine,
    network,
    ports,
    surroundings,
    weights,
)
from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.known import unknown
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.target import Target

Check = Callable[[Host, Target], Iterator[Result]]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("npus-found", cards.check_found),
    ("npu-chip", cards.check_kind),
    ("npu-count", cards.check_count),
    ("npu-health", cards.check_health),
    ("npu-processes", cards.check_processes),
    ("npu-memory", cards.check_memory),
    ("npu-firmware", cards.check_firmware),
    ("driver-version", driver.check_version),
    ("driver-version", driver.check_plan_driver),
    ("driver-cann", driver.check_cann),
    ("cann-version", driver.check_cann_version),
    ("device-nodes", devices.check_devices),
    ("mounts", devices.check_mounts),
    ("container-engine", devices.check_engine),
    ("interface", network.check_interfaces),
    ("node-address", network.check_addresses),
    ("loopback", network.check_loopback),
    ("host-name", network.check_host_name),
    ("port-conflicts", ports.check_conflicts),
    ("ports-free", ports.check_free),
    ("ports-ephemeral", ports.check_ephemeral),
    ("npu-link", links.check_links),
    ("memory", machine.check_memory),
    ("transparent-huge-pages", machine.check_transparent_huge_pages),
    ("shared-memory", machine.check_shared_memory),
    ("cpu-count", machine.check_cpus),
    ("irqbalance", machine.check_irqbalance),
    ("kernel-settings", machine.check_kernel),
    ("limits", machine.check_limits),
    ("disk-space", machine.check_disks),
    ("jemalloc", surroundings.check_jemalloc),
    ("model-files", weights.check_model),
    ("clock", surroundings.check_clock),
    ("service-links", surroundings.check_service_links),
    ("web-proxy", network.check_web_proxy),
    ("package-versions", container.check_versions),
    ("package-imports", container.check_imports),
)
"""The id that stands for a check if it cannot be carried out, and its function."""


def run_checks(host: Host, target: Target) -> tuple[Result, ...]:
    """Carries out all checks; what one of them cannot cope with is a result like any other."""
    results: list[Result] = []
    for name, check in CHECKS:
        try:
            results += check(host, target)
        except Exception as error:  # a tool's output that nobody has seen must not hide all other results
            results.append(unknown(name, f"this check failed itself: {type(error).__name__}: {error}"))
    return tuple(results)
