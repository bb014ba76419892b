"""The two ends of a comparison: one waits on one address for one visit, the other goes there."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable

from qanat.core.errors import ConfigError
from qanat.deploy.preflight.compare import compare
from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.known import failure
from qanat.deploy.preflight.peer_facts import PeerFacts, own_facts
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.session import run_agent, run_peer
from qanat.deploy.preflight.target import Target
from qanat.deploy.preflight.wire import PeerError, Wire, new_token

DEFAULT_PORT = 18321
MAX_STRANGERS = 20
"""Visits without the token after which the agent gives up."""
CONNECT_TIMEOUT_S = 10.0


def split_address(text: str, flag: str) -> tuple[str, int]:
    """Address and port of "10.0.0.2", "10.0.0.2:18321", "[fd00::2]:18321".

    Raises:
        ConfigError: there is no address in it, or no port.
    """
    host, port = text, str(DEFAULT_PORT)
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") or port
    elif text.count(":") == 1:
        host, port = text.split(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(
            f"{flag} {text}: expected ADDRESS or ADDRESS:PORT, such as 10.0.0.2:{DEFAULT_PORT}", param=flag
        )
    return host, int(port)


def listen(bind: str, *, is_any_allowed: bool) -> socket.socket:
    """Listens on one address.

    Args:
        bind: "ADDRESS" or "ADDRESS:PORT"; port 0 lets the system choose.
        is_any_allowed: whether 0.0.0.0 and :: may be listened on.

    Raises:
        ConfigError: no address of this host, one that is every address, or a port that is taken.
    """
    address, port = split_address(bind, "--bind")
    try:
        is_any = ipaddress.ip_address(address).is_unspecified
    except ValueError:
        raise ConfigError(
            f"--bind {bind}: give the address of one interface, not a name.", param="--bind"
        ) from None
    if is_any and not is_any_allowed:
        raise ConfigError(
            f"--bind {address} listens on every interface; give the address by which the nodes reach each other, or "
            "--any-address if that is meant.",
            param="--bind",
        )
    server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen(8)
    except OSError as error:
        server.close()
        raise ConfigError(f"--bind {bind}: {error.strerror or error}", param="--bind") from None
    return server


def serve(
    server: socket.socket, host: Host, target: Target, timeout_s: float, announce: Callable[[str, str], None]
) -> tuple[Result, ...]:
    """Waits for one node that knows the token, compares both, and ends.

    Args:
        server: what `listen` opened; it is closed.
        host: this host.
        target: its node of the plan.
        timeout_s: seconds after which it ends without a visit.
        announce: gets "ADDRESS:PORT" and the token once visits are possible.
    """
    token = new_token()
    own = own_facts(host, target)
    deadline = time.monotonic() + timeout_s
    with server:
        announce(_address_of(server), token)
        for _ in range(MAX_STRANGERS):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            server.settimeout(left)
            try:
                connection, _ = server.accept()
            except TimeoutError:
                break
            with connection:
                wire = Wire(connection, token, is_agent=True)
                try:
                    wire.greet()
                except PeerError:
                    continue
                server.close()
                return _as_agent(wire, host, own)
        else:
            return (failure("peer-reach", f"{MAX_STRANGERS} visits without the token; nothing was compared"),)
    return (failure("peer-reach", f"no node with the token came within {timeout_s:.0f} s"),)


def visit(address: str, token: str, host: Host, own: PeerFacts) -> tuple[Result, ...]:
    """Goes to an agent and compares both nodes.

    Args:
        address: that the agent printed.
        token: that it printed.
        host: this host.
        own: its facts.
    """
    name, port = split_address(address, "--peer")
    try:
        connection = socket.create_connection((name, port), timeout=CONNECT_TIMEOUT_S)
    except TimeoutError:
        return (failure("peer-reach", f"{address} does not answer"),)
    except OSError as error:
        return (failure("peer-reach", f"{address}: {error.strerror or error}; does the agent wait there?"),)
    with connection:
        wire = Wire(connection, token, is_agent=False)
        try:
            wire.greet()
            other, measured = run_peer(wire, host, own)
        except PeerError as error:
            return (
                failure(
                    "peer-reach", f"{address}: {error}", fix="Start the agent again and give its new token."
                ),
            )
    return compare(other, own, measured)


def _as_agent(wire: Wire, host: Host, own: PeerFacts) -> tuple[Result, ...]:
    try:
        other, measured = run_agent(wire, host, own)
    except PeerError as error:
        return (failure("peer-reach", f"the comparison broke off: {error}", fix="Start both ends again."),)
    return compare(own, other, measured)


def _address_of(server: socket.socket) -> str:
    address, port = server.getsockname()[:2]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
