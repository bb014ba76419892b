"""What two nodes do together once each knows the other: facts, clocks, ports, bandwidth. Both ends get all of it."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Iterator

import msgspec

from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.peer_facts import MAX_PORTS, PeerFacts, decode_facts
from qanat.deploy.preflight.ports import LAST_PORT
from qanat.deploy.preflight.wire import PeerError, Wire

CLOCK_ROUNDS = 8
CONNECT_TIMEOUT_S = 3.0
FIRST_BULK_BYTES = 2**18
LAST_BULK_BYTES = 2**25
MAX_PIECES = 8
BULK_SECONDS = 1.0
"""No larger piece is sent once one took so long."""


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was measured between a peer, which came, and an agent, which waited.

    Attributes:
        skew_s: clock of the agent minus that of the peer.
        round_trip_s: of the quickest message; the skew is known to half of it.
        closed_at_agent: ports of the agent that the peer could not reach, with the reason.
        closed_at_peer: ports of the peer that the agent could not reach, with the reason.
        num_tried: ports that were tried in both directions together.
        to_agent_mib_s: bandwidth from the peer to the agent.
        to_peer_mib_s: bandwidth from the agent to the peer.
    """

    skew_s: float
    round_trip_s: float
    closed_at_agent: dict[int, str]
    closed_at_peer: dict[int, str]
    num_tried: int
    to_agent_mib_s: float
    to_peer_mib_s: float


def run_peer(wire: Wire, host: Host, own: PeerFacts) -> tuple[PeerFacts, Measured]:
    """The part of the end that came.

    Raises:
        PeerError: the other end stopped, or says what it should not.
    """
    wire.send("facts", facts=msgspec.to_builtins(own))
    other = decode_facts(wire.receive("facts").get("facts"))
    skew_s, round_trip_s = _ask_clock(wire, host)
    closed_at_agent, num_there = _try_ports(wire)
    closed_at_peer, num_here = _open_ports(wire, own.ports)
    to_agent = _send_pieces(wire)
    to_peer = _receive_pieces(wire)
    measured = Measured(
        skew_s=skew_s,
        round_trip_s=round_trip_s,
        closed_at_agent=closed_at_agent,
        closed_at_peer=closed_at_peer,
        num_tried=num_there + num_here,
        to_agent_mib_s=to_agent,
        to_peer_mib_s=to_peer,
    )
    wire.send("measured", measured=msgspec.to_builtins(measured))
    wire.receive("end")
    return other, measured


def run_agent(wire: Wire, host: Host, own: PeerFacts) -> tuple[PeerFacts, Measured]:
    """The part of the end that waited.

    Raises:
        PeerError: the other end stopped, or says what it should not.
    """
    other = decode_facts(wire.receive("facts").get("facts"))
    wire.send("facts", facts=msgspec.to_builtins(own))
    for _ in range(CLOCK_ROUNDS):
        wire.receive("clock")
        wire.send("clock", time_s=host.now_s())
    _open_ports(wire, own.ports)
    _try_ports(wire)
    _receive_pieces(wire)
    _send_pieces(wire)
    try:
        measured = msgspec.convert(wire.receive("measured").get("measured"), Measured, strict=False)
    except msgspec.ValidationError as error:
        raise PeerError(f"the other end measured otherwise than this version does: {error}") from None
    wire.send("end")
    return other, measured


def _ask_clock(wire: Wire, host: Host) -> tuple[float, float]:
    """Clock of the other end minus this one's, by the quickest of some messages, and how long that took."""
    best = (0.0, float("inf"))
    for _ in range(CLOCK_ROUNDS):
        start, begin = host.now_s(), time.monotonic()
        wire.send("clock")
        answer = wire.receive("clock").get("time_s")
        took = time.monotonic() - begin
        if not isinstance(answer, int | float):
            raise PeerError("the other end has no clock")
        if took < best[1]:
            best = (float(answer) - start - took / 2, took)
    return best


def _open_ports(wire: Wire, ports: tuple[int, ...]) -> tuple[dict[int, str], int]:
    """Listens on ports of the plan while the other end tries them, on the address of this connection only.

    Returns what the other end could not reach, and how many it tried.
    """
    address = wire.connection.getsockname()[0]
    with contextlib.ExitStack() as stack:
        opened = [port for port in ports if _can_listen(stack, address, port)]
        wire.send("open", ports=opened)
        message = wire.receive("tried")
    # Where both ends are on one host, the other may open the same ports only now.
    wire.send("closed")
    closed = message.get("closed")
    if not isinstance(closed, dict) or not set(closed) <= {str(port) for port in opened}:
        raise PeerError("the other end does not say which ports it reached")
    return {int(port): str(reason) for port, reason in closed.items()}, len(opened)


def _try_ports(wire: Wire) -> tuple[dict[int, str], int]:
    """Connects to the ports that the other end opened; those that cannot be reached, and how many were tried."""
    ports = wire.receive("open").get("ports")
    if not isinstance(ports, list) or len(ports) > MAX_PORTS:
        raise PeerError("the other end does not say which ports it opened")
    address = wire.connection.getpeername()[0]
    closed: dict[int, str] = {}
    for port in ports:
        if not isinstance(port, int) or not 0 < port <= LAST_PORT:
            raise PeerError("the other end names a port that there is not")
        reason = _connect(address, port)
        if reason is not None:
            closed[port] = reason
    wire.send("tried", closed={str(port): reason for port, reason in closed.items()})
    wire.receive("closed")
    return closed, len(ports)


def _can_listen(stack: contextlib.ExitStack, address: str, port: int) -> bool:
    """Listens until the stack is closed; True too if somebody else listens there, so that it can be tried."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen(4)
    except OSError as error:
        return error.errno == errno.EADDRINUSE and _connect(address, port) is None
    return True


def _connect(address: str, port: int) -> str | None:
    try:
        socket.create_connection((address, port), timeout=CONNECT_TIMEOUT_S).close()
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return error.strerror or str(error)
    return None


def _send_pieces(wire: Wire) -> float:
    """Sends larger and larger pieces; MiB a second of the last one."""
    speed = 0.0
    for size in _sizes():
        wire.send("bulk", num_bytes=size)
        wire.send_bulk(size)
        took = wire.receive("got").get("took_s")
        if not isinstance(took, int | float):
            raise PeerError("the other end does not say how long it took")
        speed = size / 2**20 / max(float(took), 1e-6)
        if took > BULK_SECONDS:
            break
    wire.send("bulk", num_bytes=0, speed=speed)
    return speed


def _receive_pieces(wire: Wire) -> float:
    """Receives pieces; the speed that the other end made of it, MiB a second."""
    for _ in range(MAX_PIECES):
        message = wire.receive("bulk")
        size = message.get("num_bytes")
        if not isinstance(size, int) or not 0 <= size <= LAST_BULK_BYTES:
            raise PeerError("the other end sends too much")
        if size == 0:
            speed = message.get("speed")
            return float(speed) if isinstance(speed, int | float) else 0.0
        begin = time.monotonic()
        left = size
        while left > 0:
            left -= len(wire.receive_exactly(min(left, 2**18)))
        wire.send("got", took_s=time.monotonic() - begin)
    raise PeerError("the other end sends too much")


def _sizes() -> Iterator[int]:
    size = FIRST_BULK_BYTES
    while size <= LAST_BULK_BYTES:
        yield size
        size *= 4
