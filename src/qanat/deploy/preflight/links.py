"""The network ports that NPUs have themselves, as hccn_tool sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from qanat.deploy.preflight.cards import npu_table, used_chips
from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.known import chip_named, failure, good, unknown, warning
from qanat.deploy.preflight.npu_smi import read_link, read_net_health, read_npu_address, read_tls
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.target import Target

HAVE_PORTS = ("A2", "A3")
"""Families of chips with ports that hccn_tool knows; 310P have none, the 950 has another tool."""


def check_links(host: Host, target: Target) -> Iterator[Result]:
    """Link, address, health and TLS of every NPU's port; these matter once a deployment has several nodes."""
    chips = used_chips(npu_table(host), target)
    if not chips:
        return
    chip = chip_named(chips[0].name)
    if chip is not None and chip.family not in HAVE_PORTS:
        yield unknown("npu-link", f"ports of the {chip.name} are not looked at: hccn_tool is for A2 and A3")
        return
    numbers = [each.physical for each in chips]
    probe = host.run("hccn_tool", "-i", str(numbers[0]), "-link", "-g")
    if probe.problem:
        yield unknown("npu-link", f"hccn_tool: {probe.problem}; links between NPUs were not looked at")
        return
    yield from _links(host, target, numbers)
    yield from _tls(host, numbers)


def _links(host: Host, target: Target, numbers: list[int]) -> Iterator[Result]:
    down = _each(host, numbers, read_link, "-link", "-g")
    yield from _told(
        "npu-link",
        target,
        {number: state for number, state in down.items() if state != "UP"},
        len(numbers),
        "up",
    )
    addresses = _each(host, numbers, read_npu_address, "-ip", "-g")
    missing = {number: "no address" for number, address in addresses.items() if not address}
    yield from _told("npu-address", target, missing, len(numbers), "with an address")
    taken: dict[str, int] = {}
    for number, address in addresses.items():
        if address and address in taken:
            yield failure("npu-address", f"NPUs {taken[address]} and {number} both have {address}")
        taken.setdefault(address, number)
    health = _each(host, numbers, read_net_health, "-net_health", "-g")
    ill = {number: state for number, state in health.items() if state not in ("Success", "Init")}
    yield from _told("npu-net-health", target, ill, len(numbers), "healthy")


def _tls(host: Host, numbers: list[int]) -> Iterator[Result]:
    switches = _each(host, numbers, read_tls, "-tls", "-g")
    states = set(switches.values())
    if states == {""}:
        yield unknown("npu-tls", "hccn_tool does not tell; root can see it")
    elif len(states) > 1:
        on = ", ".join(str(number) for number, switch in switches.items() if switch == "1")
        yield failure("npu-tls", f"TLS is on for NPU {on or 'none'} only, or not known for some")
    else:
        yield good(
            "npu-tls",
            f"TLS is {'on' if states == {'1'} else 'off'} for all NPUs; it must be so on every node",
        )


def _each(host: Host, numbers: list[int], read: Callable[[str], str], *words: str) -> dict[int, str]:
    return {number: read(host.run("hccn_tool", "-i", str(number), *words).text) for number in numbers}


def _told(check: str, target: Target, bad: dict[int, str], total: int, word: str) -> Iterator[Result]:
    """One result for all NPUs: a failure where nodes talk to each other, else a warning."""
    if not bad:
        yield good(check, f"{total} NPUs {word}")
        return
    states: dict[str, list[str]] = {}
    for number, state in bad.items():
        states.setdefault(state or "no answer", []).append(str(number))
    seen = "; ".join(f"{state}: NPU {', '.join(which)}" for state, which in states.items())
    if target.has_peers or target.flag("kv-transfer-config") is not None:
        yield failure(check, seen)
    else:
        yield warning(check, f"{seen} (of no matter on a single node)")
