"""This host's addresses, and which of them a service of several hosts uses."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
IF_INET6 = Path("/proc/net/if_inet6")
SIOCGIFADDR = 0x8915
"""Linux: the IPv4 address of an interface."""


def own_addresses() -> dict[str, str]:
    """Interface by address, for those that Linux tells of; empty on other systems."""
    return {**_ipv4_addresses(), **_ipv6_addresses()}


def interface_of(address: str) -> str:
    """Name of the interface that has this address; "all" for an address that stands for all, "?" if none has it."""
    if ipaddress.ip_address(address).is_unspecified:
        return "all"
    return own_addresses().get(address, "?")


def resolved(name: str) -> str:
    """The numeric address that a name stands for; a numeric one is its own.

    Raises:
        OSError: nobody knows the name.
    """
    return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])


def address_towards(address: str, port: int) -> str:
    """The address of this host from which that one, a numeric one, is reached; nothing is sent.

    Raises:
        OSError: there is no way to it.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
        probe.connect((address, port))
        return str(probe.getsockname()[0])


def _ipv4_addresses() -> dict[str, str]:
    try:
        import fcntl
    except ImportError:
        return {}
    found = {}
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(probe, SIOCGIFADDR, name.encode()[:15].ljust(256, b"\0"))
                found[socket.inet_ntoa(answer[20:24])] = name
    return found


def _ipv6_addresses() -> dict[str, str]:
    try:
        lines = IF_INET6.read_text().splitlines()
    except OSError:
        return {}
    rows = [line.split() for line in lines]
    return {str(ipaddress.IPv6Address(int(row[0], 16))): row[5] for row in rows if len(row) == 6}
