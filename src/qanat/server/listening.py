"""Takes the server's address before anything is loaded, and says clearly what stands in the way."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

from qanat.core.errors import ConfigError


def bind_tcp(host: str, port: int) -> socket.socket:
    """A socket bound to the address; port 0 takes a free port.

    Raises:
        ConfigError: the address is taken, not allowed, or not one of this machine's.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror:
        raise ConfigError(f"--host {host} is not an address of this machine.", param="--host") from None
    sock = socket.socket(family, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a server before us may linger
    try:
        sock.bind(address)
        sock.listen(0)  # a second server with the same port is told now, not after it has loaded
    except OSError as error:
        sock.close()
        raise _explained(error, host, port) from None
    return sock


def bind_unix(path: str) -> socket.socket:
    """A Unix socket at this path; one that no server listens on any more is replaced.

    Raises:
        ConfigError: another server listens there, or the path cannot be used.
    """
    place = Path(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if place.exists() and stat.S_ISSOCK(os.stat(place).st_mode) and not _answers(path):
            place.unlink()
        sock.bind(path)
        sock.listen(0)
    except OSError as error:
        sock.close()
        raise ConfigError(f"--uds {path} cannot be used: {error.strerror}.", param="--uds") from None
    return sock


def url_of(sock: socket.socket, host: str, scheme: str = "http") -> str:
    """The address that a client on this machine uses."""
    port = sock.getsockname()[1]
    reachable = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"


def _answers(path: str) -> bool:
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        return probe.connect_ex(path) == 0


def _explained(error: OSError, host: str, port: int) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"Port {port} of {host} is taken by another program. Stop it, or choose another port: "
            f"--port {_free_port()} is free now, --port 0 takes any.",
            param="--port",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return ConfigError(
            f"Port {port} needs rights that this user does not have; choose one from 1024 on.", param="--port"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(f"--host {host} is not an address of this machine.", param="--host")
    return ConfigError(f"{host}:{port} cannot be used: {error.strerror}.", param="--host")


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
