"""Libraries, clock and environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.known import failure, good, paths, unknown, warning
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.target import Target

LINK_VALUE = re.compile(r"(?:tcp|udp|sctp)://\S+")
LINK_NAME = re.compile(r"(?P<service>[A-Z][A-Z0-9_]*?)_PORT(?:_\d+_(?:TCP|UDP|SCTP))?")
READ_PREFIXES = ("VLLM_", "QANAT_", "HCCL_", "ASCEND_", "MOONCAKE_")
"""Variables that begin so are read by the programs of a deployment."""


def check_jemalloc(host: Host, target: Target) -> Iterator[Result]:
    """Whether what is preloaded exists; and inside an image, whether jemalloc is preloaded at all."""
    variables = host.variables() if target.is_in_container or target.plan is None else target.variables
    preloaded = [path for path in re.split(r"[:\s]+", variables.get("LD_PRELOAD", "")) if path]
    if not target.is_in_container:
        # On the host the image's paths mean nothing.
        return
    missing = [path for path in preloaded if path.startswith("/") and not host.exists(path)]
    if missing:
        yield warning("jemalloc", f"LD_PRELOAD names {', '.join(missing)}, which does not exist")
    elif any("jemalloc" in path for path in preloaded):
        yield good("jemalloc", f"preloaded: {', '.join(preloaded)}")
    else:
        there = [path for path in paths("allocator", None) if host.exists(path)]
        fix = f"export LD_PRELOAD={there[0]}" if there else ""
        yield warning(
            "jemalloc", "jemalloc is not preloaded", "The C library's allocator is slower here.", fix
        )


def check_clock(host: Host, target: Target) -> Iterator[Result]:
    """Whether the clock is synchronised."""
    shown = host.run("timedatectl", "show", "--property=NTPSynchronized", "--value")
    if shown.is_good and shown.text.strip() in ("yes", "no"):
        if shown.text.strip() == "yes":
            yield good("clock", "the clock is synchronised")
        else:
            yield _unsynchronised(target, "timedatectl says that the clock is not synchronised")
        return
    tracking = host.run("chronyc", "-n", "tracking")
    if tracking.is_good:
        status = re.search(r"^Leap status\s*:\s*(.+)$", tracking.text, re.MULTILINE)
        if status is not None and status.group(1).strip() == "Normal":
            yield good("clock", "chrony keeps the clock synchronised")
        else:
            yield _unsynchronised(target, f"chrony: leap status {status.group(1) if status else 'unknown'}")
        return
    yield unknown("clock", "neither timedatectl nor chronyc tells whether the clock is synchronised")


def check_service_links(host: Host, target: Target) -> Iterator[Result]:
    """Variables of Kubernetes that look like settings (OPS-004)."""
    variables = host.variables()
    found = sorted(
        name
        for name, text in variables.items()
        if name.startswith(READ_PREFIXES) and LINK_NAME.fullmatch(name) and LINK_VALUE.fullmatch(text)
    )
    for name in found:
        match = LINK_NAME.fullmatch(name)
        service = match.group("service").lower().replace("_", "-") if match else ""
        seen = f"{name}={variables[name]} is a service link of Kubernetes, for a service named {service}"
        # vLLM reads VLLM_PORT as a number; the others are read by nobody.
        yield failure("service-links", seen) if name == "VLLM_PORT" else warning("service-links", seen)
    if not found and "KUBERNETES_SERVICE_HOST" in variables:
        yield good("service-links", "no variable of Kubernetes looks like a setting")


def _unsynchronised(target: Target, seen: str) -> Result:
    return failure("clock", seen) if target.is_group_spread else warning("clock", seen)
