"""Every port a node listens on: against each other, against the kernel's range, and whether it is free."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from qanat.deploy.plan.wish import Topology
from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.known import failure, good, ray_port, threshold, warning
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.target import Target

ANY_ADDRESS = "0.0.0.0"
LAST_PORT = 65535
RANGE_FILE = "/proc/sys/net/ipv4/ip_local_port_range"
RESERVED_FILE = "/proc/sys/net/ipv4/ip_local_reserved_ports"
_HOLDER = re.compile(r'\("([^"]*)",pid=(\d+)')


@dataclass(frozen=True)
class PortUse:
    """Ports that something listens on.

    Attributes:
        name: the flag or variable that chooses them.
        ports: from the first to the last.
        address: they are opened on.
        is_drawn: only some of them are taken, at random, so that none can be tried.
    """

    name: str
    ports: range
    address: str = ANY_ADDRESS
    is_drawn: bool = False

    def __str__(self) -> str:
        """As a sentence says it: "--port 8000"."""
        return f"{self.name} {told(self.ports)}"


def told(ports: range) -> str:
    """A port, or "60000 to 60015"."""
    return str(ports.start) if len(ports) == 1 else f"{ports.start} to {ports.stop - 1}"


def port_uses(target: Target) -> tuple[PortUse, ...]:
    """All ports that this node listens on once the deployment runs."""
    uses: list[PortUse] = []
    host_flag = str(target.flag("host") or ANY_ADDRESS)
    if target.port is not None:
        uses.append(PortUse("--port", range(target.port, target.port + 1), host_flag))
    if target.plan is None or target.node is None:
        return tuple(uses)
    num_ranks = target.integer("tensor-parallel-size", 1) * target.integer("data-parallel-size", 1)
    num_ranks *= target.integer("pipeline-parallel-size", 1)
    is_first = target.node.rank == 0
    if is_first and target.integer("data-parallel-size", 1) > 1:
        port = target.integer("data-parallel-rpc-port", int(threshold("rpc-port")))
        uses.append(PortUse("--data-parallel-rpc-port", range(port, port + 1)))
    if is_first and target.flag("master-port") is not None:
        port = target.integer("master-port", 0)
        uses.append(PortUse("--master-port", range(port, port + 1)))
    base = target.key("kv-transfer-config", "kv_port")
    if str(base).isdigit():
        uses.append(PortUse("kv_port", range(int(base), int(base) + num_ranks)))
    if is_first and target.plan.topology is Topology.RAY:
        port = ray_port()
        uses.append(PortUse("Ray's port", range(port, port + 1)))
    uses += _of_libraries(target, num_ranks)
    proxy = target.plan.proxy
    if proxy is not None and proxy.node == target.node.name:
        uses.append(PortUse("the proxy's port", range(proxy.port, proxy.port + 1)))
    return tuple(uses)


def check_conflicts(host: Host, target: Target) -> Iterator[Result]:
    """Every two uses against each other (OPS-006)."""
    uses = port_uses(target)
    clean = True
    for index, use in enumerate(uses):
        if use.ports.start < 1 or use.ports.stop - 1 > LAST_PORT:
            clean = False
            yield failure("port-conflicts", f"{use}: there are ports from 1 to {LAST_PORT} only")
        for other in uses[:index]:
            first, stop = max(use.ports.start, other.ports.start), min(use.ports.stop, other.ports.stop)
            if first < stop:
                clean = False
                seen = f"{other} and {use} both use {told(range(first, stop))}"
                # The transfer tries another port if one is taken; only its own side channel must not be among them.
                is_chance = (other.is_drawn or use.is_drawn) and "kv_port" not in (other.name, use.name)
                yield warning("port-conflicts", seen) if is_chance else failure("port-conflicts", seen)
    if uses and clean:
        yield good("port-conflicts", f"no overlap: {', '.join(str(use) for use in uses)}")


def check_free(host: Host, target: Target) -> Iterator[Result]:
    """Opens every port for a moment (OPS-008)."""
    tried = 0
    bad = False
    for use in port_uses(target):
        if use.is_drawn or use.ports.stop - 1 > LAST_PORT or use.ports.start < 1:
            continue
        taken: dict[str, list[int]] = {}
        for port in use.ports:
            reason = host.bind_error(use.address, port)
            tried += 1
            if reason is not None:
                taken.setdefault(reason, []).append(port)
        for reason, ports in taken.items():
            bad = True
            yield _taken(host, use, reason, ports)
    if tried and not bad:
        yield good("ports-free", f"{tried} ports can be opened")


def check_ephemeral(host: Host, target: Target) -> Iterator[Result]:
    """Ports that the kernel may give to outgoing connections first."""
    words = (host.read(RANGE_FILE) or "").split()
    uses = [use for use in port_uses(target) if not use.is_drawn]
    if len(words) != 2 or not all(word.isdigit() for word in words) or not uses:
        return
    kernel = range(int(words[0]), int(words[1]) + 1)
    reserved = _ranges(host.read(RESERVED_FILE) or "")
    risky = [use for use in uses if any(port in kernel and not _is_in(port, reserved) for port in use.ports)]
    if not risky:
        yield good(
            "ports-ephemeral",
            f"none of them in {told(kernel)}, the range of outgoing connections, or reserved",
        )
        return
    ranges = [f"{each.start}-{each.stop - 1}" for each in reserved]
    ranges += [f"{use.ports.start}-{use.ports.stop - 1}" for use in risky]
    yield warning(
        "ports-ephemeral",
        f"{', '.join(str(use) for use in risky)} in {told(kernel)}, the range of outgoing connections",
        fix=f"sysctl -w net.ipv4.ip_local_reserved_ports={','.join(ranges)}",
    )


def _of_libraries(target: Target, num_ranks: int) -> Iterator[PortUse]:
    """Ports of HCCL and of the transfer of caches."""
    variables = target.variables
    first, count = int(threshold("hccl-first-port")), int(threshold("hccl-num-ports"))
    base = variables.get("HCCL_IF_BASE_PORT", "")
    if num_ranks > 1 and "HCCL_HOST_SOCKET_PORT_RANGE" not in variables:
        start = int(base) if base.isdigit() else first
        yield PortUse("HCCL_IF_BASE_PORT" if base else "HCCL", range(start, start + count))
    connector = str(target.key("kv-transfer-config", "kv_connector") or "")
    if "Mooncake" in connector and not variables.get("ASCEND_BASE_PORT"):
        start = int(threshold("transfer-first-port"))
        stop = start + int(threshold("transfer-ports-per-npu")) * max(1, len(target.npus))
        yield PortUse("the transfer's random ports", range(start, stop), is_drawn=True)


def _taken(host: Host, use: PortUse, reason: str, ports: list[int]) -> Result:
    listed = ", ".join(str(port) for port in ports[:4]) + (" and more" if len(ports) > 4 else "")
    seen = f"{use.name} {listed} on {use.address}: {reason}"
    if reason == "address already in use":
        holder = _holder(host, ports[0])
        return failure(
            "ports-free", seen + (f" by {holder}" if holder else "; ss -ltnp as root names the holder")
        )
    if reason == "no such address on this host":
        return failure("ports-free", seen, fix="Give --host an address of this host, or 0.0.0.0 for all.")
    if reason == "not allowed for this user":
        fix = "Choose a port from 1024 on, or start as root."
        return warning("ports-free", seen, "Ports below 1024 are for root.", fix)
    return failure("ports-free", seen)


def _holder(host: Host, port: int) -> str:
    """Program and process that listen on a port, empty if it is not known."""
    for line in host.run("ss", "-Hltnp").text.splitlines():
        words = line.split()
        if len(words) > 3 and words[3].rsplit(":", 1)[-1] == str(port):
            match = _HOLDER.search(line)
            if match is not None:
                return f"{match.group(1)}, process {match.group(2)}"
    return ""


def _ranges(text: str) -> list[range]:
    """Ranges of ip_local_reserved_ports: "60000-60015,8080"."""
    found = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.strip().isdigit() and (not last or last.strip().isdigit()):
            found.append(range(int(first), int(last or first) + 1))
    return found


def _is_in(port: int, ranges: list[range]) -> bool:
    return any(port in each for each in ranges)
