"""This host's addresses on the networks that it is connected to."""

from __future__ import annotations

import contextlib
import socket

GET_ADDRESS = 0x8915
"""Linux's SIOCGIFADDR: the IPv4 address of an interface."""
LOOPBACK = "127.0.0.1"


def numeric(name: str, port: int) -> str:
    """The address that a host's name stands for; an address stands for itself.

    Raises:
        OSError: nobody knows the name.
    """
    return str(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0][4][0])


def address_towards(address: str, port: int) -> str:
    """The address of this host's interface from which another one is reached; nothing is sent.

    Raises:
        OSError: there is no way to it.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, port))
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str:
    """Name of the interface with this IPv4 address; "?" if it cannot be found."""
    try:
        from fcntl import ioctl
    except ImportError:  # no Unix
        return "?"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # one without an address
                answer = ioctl(probe, GET_ADDRESS, name.encode().ljust(256, b"\0"))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return "?"
