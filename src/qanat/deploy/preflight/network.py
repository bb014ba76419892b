"""Interfaces and addresses of the host against those that the plan names."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qanat.deploy.node_settings import ADDRESS_VARIABLES, FIRST_ADDRESS_FLAGS, INTERFACE_VARIABLES
from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.known import failure, good, unknown, warning
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.target import Target


@dataclass(frozen=True)
class Interface:
    """A network interface; `has_carrier` says that something is at the other end."""

    name: str
    is_up: bool
    has_carrier: bool
    is_loopback: bool
    addresses: tuple[str, ...]


def interfaces(host: Host) -> tuple[Interface, ...] | None:
    """All interfaces; None if `ip` cannot be asked."""
    output = host.run("ip", "-j", "addr")
    try:
        rows = json.loads(output.text) if output.is_good else None
        return None if rows is None else tuple(_interface(row) for row in rows if row.get("ifname"))
    except (ValueError, AttributeError, TypeError):
        return None


def own_addresses(host: Host) -> tuple[str, ...]:
    """All addresses of the host."""
    return tuple(address for each in interfaces(host) or () for address in each.addresses)


def is_loopback(address: str) -> bool:
    """Whether an address or a name leads to the host itself only."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


def named_interfaces(host: Host, target: Target) -> dict[str, str]:
    """What names an interface, and the interface: variables of the plan, or of the environment without a plan."""
    variables = target.variables if target.plan else host.variables()
    named = {name: variables[name] for name in INTERFACE_VARIABLES if variables.get(name)}
    if target.node is not None and target.node.interface:
        named["the plan's interface"] = target.node.interface
    return named


def named_addresses(host: Host, target: Target) -> dict[str, str]:
    """What names an address of this host, and the address."""
    variables = target.variables if target.plan else host.variables()
    named = {name: variables[name] for name in ADDRESS_VARIABLES if variables.get(name)}
    if target.node is not None and target.node.address:
        named["the plan's address"] = target.node.address
    if target.node is not None and target.node.rank == 0 and target.flag("data-parallel-address"):
        named["--data-parallel-address"] = str(target.flag("data-parallel-address"))
    return named


def check_interfaces(host: Host, target: Target) -> Iterator[Result]:
    """Whether the interfaces that are named exist and are up."""
    named = named_interfaces(host, target)
    there = interfaces(host)
    if not named:
        if target.has_peers:
            fix = "Set interface and addresses in the plan, or in env.sh of the rendered folder."
            yield warning("interface", "no interface is named for a deployment of several nodes", fix=fix)
        return
    if there is None:
        yield unknown("interface", "`ip -j addr` cannot be run here")
        return
    for text, names in _by_value(named).items():
        for name in text.split(","):
            yield from _interface_results(names, name.strip(), there)


def check_addresses(host: Host, target: Target) -> Iterator[Result]:
    """Whether the addresses that are named are those of this host, and of the interface named beside them."""
    there = interfaces(host)
    named = named_addresses(host, target)
    if there is None or not named:
        return
    wanted = [each for text in named_interfaces(host, target).values() for each in _matching(text, there)]
    for text, names in _by_value(named).items():
        what = ", ".join(names)
        addresses = (text,) if _is_address(text) else host.resolve(text)
        holders = [each for each in there if set(addresses) & set(each.addresses)]
        if not addresses:
            yield failure("node-address", f"{what} {_is(names)} {text}, which does not resolve")
        elif not holders:
            own = ", ".join(
                address for each in there for address in each.addresses if not is_loopback(address)
            )
            yield failure("node-address", f"{what} {_is(names)} {text}; this host has {own or 'no address'}")
        elif wanted and holders[0] not in wanted:
            seen = f"{what} {_is(names)} {text} on {holders[0].name}, the interface named beside it is {wanted[0].name}"
            yield failure("node-address", seen)
        else:
            yield good("node-address", f"{what} {text} is on {holders[0].name}")


def check_loopback(host: Host, target: Target) -> Iterator[Result]:
    """Whether a deployment of several nodes names loopback anywhere (OPS-018)."""
    if not target.has_peers or target.plan is None:
        return
    named = {**named_interfaces(host, target), **named_addresses(host, target)}
    for flag in FIRST_ADDRESS_FLAGS:
        if target.flag(flag):
            named[f"--{flag}"] = str(target.flag(flag))
    named.update({f"the address of {node.name}": node.address for node in target.plan.nodes if node.address})
    bad = {what: text for what, text in named.items() if text == "lo" or is_loopback(text)}
    for what, text in bad.items():
        yield failure("loopback", f"{what} is {text}, and the deployment has {len(target.plan.nodes)} nodes")
    if named and not bad:
        yield good("loopback", f"none of {len(named)} names leads to loopback")


def check_host_name(host: Host, target: Target) -> Iterator[Result]:
    """Whether the name of the host leads to one of its addresses."""
    name = host.host_name()
    found = host.resolve(name)
    own = own_addresses(host)
    report = failure if target.is_group_spread else warning
    if not found:
        yield report("host-name", f"the host name {name} does not resolve")
    elif all(is_loopback(address) for address in found):
        if target.has_peers:
            yield warning(
                "host-name", f"{name} resolves to {', '.join(found)} only, which other nodes cannot reach"
            )
        else:
            yield good("host-name", f"{name} resolves to {', '.join(found)}")
    elif own and not set(found) & set(own):
        yield report("host-name", f"{name} resolves to {', '.join(found)}, which this host does not have")
    else:
        yield good("host-name", f"{name} resolves to {', '.join(found)}")


def check_web_proxy(host: Host, target: Target) -> Iterator[Result]:
    """Whether a web proxy stands between the nodes of a disaggregated deployment."""
    if target.flag("kv-transfer-config") is None or target.plan is None:
        return
    variables = {name.lower(): text for name, text in host.variables().items() if text}
    used = [name for name in ("http_proxy", "https_proxy") if name in variables]
    spared = {name.strip() for name in variables.get("no_proxy", "").split(",")}
    nodes = {node.address for node in target.plan.nodes if node.address}
    if used and "*" not in spared and (not nodes or nodes - spared):
        yield warning("web-proxy", f"{' and '.join(used)} set, and no_proxy does not name the nodes")


def _interface(row: dict[str, object]) -> Interface:
    flags = row.get("flags")
    flags = flags if isinstance(flags, list) else []
    infos = row.get("addr_info")
    infos = infos if isinstance(infos, list) else []
    return Interface(
        name=str(row["ifname"]),
        is_up="UP" in flags,
        has_carrier="LOWER_UP" in flags,
        is_loopback="LOOPBACK" in flags,
        addresses=tuple(str(info["local"]) for info in infos if isinstance(info, dict) and "local" in info),
    )


def _matching(text: str, there: Sequence[Interface]) -> list[Interface]:
    """Interfaces that a variable names: HCCL takes prefixes, =name is exact, ^name is all others."""
    found: list[Interface] = []
    for name in text.split(","):
        exact = name.lstrip("=").strip()
        if name.startswith("^"):
            found += [each for each in there if not each.name.startswith(name.lstrip("^="))]
        else:
            same = [each for each in there if each.name == exact]
            found += same or [
                each for each in there if not name.startswith("=") and each.name.startswith(exact)
            ]
    return found


def _by_value(named: dict[str, str]) -> dict[str, list[str]]:
    """What is named -> all that name it."""
    found: dict[str, list[str]] = {}
    for what, text in named.items():
        found.setdefault(text, []).append(what)
    return found


def _interface_results(names: list[str], name: str, there: Sequence[Interface]) -> Iterator[Result]:
    what = ", ".join(names)
    matching = _matching(name, there)
    if names != ["HCCL_SOCKET_IFNAME"]:
        # Only HCCL takes prefixes.
        matching = [each for each in matching if each.name == name]
    if not matching:
        known = ", ".join(each.name for each in there if not each.is_loopback)
        yield failure("interface", f"{what} {_is(names)} {name}; this host has {known or 'no interface'}")
        return
    for each in matching[:1]:
        if not each.is_up:
            yield failure("interface", f"{what}: {each.name} is down", fix=f"ip link set {each.name} up")
        elif not each.has_carrier:
            yield failure(
                "interface", f"{what}: {each.name} has no carrier", fix="Check the cable and the switch."
            )
        elif not each.addresses:
            yield failure("interface", f"{what}: {each.name} has no address")
        else:
            yield good("interface", f"{what}: {each.name} is up with {', '.join(each.addresses)}")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
