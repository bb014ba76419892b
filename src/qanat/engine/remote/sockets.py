"""The TCP sockets of head and hosts: the secret that both prove, and what became of attempts to connect."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import zmq
import zmq.asyncio
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from qanat.config.cluster_key import cluster_secret

PIECE_BYTES = 2**16
"""Payloads travel in frames of at most this size."""
MAX_FRAME_BYTES = 2 * PIECE_BYTES
"""Of a frame that is announced to be larger nothing is read. Holds before the secret is proven too, so it is small."""
HANDSHAKE_MS = 5_000
"""Who has not proven the secret by then is hung up on: a stranger may hold a file and a frame for so long."""
CONNECTION_HEARTBEAT_MS = 5_000
CONNECTION_TIMEOUT_MS = 20_000
"""The head's system forgets connections that lead nowhere; who is alive is told by beats, sooner."""
RETRY_MS = 200
EVENTS = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
)
_CRYPTOGRAPHIC = 0x11000001
"""ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC: what came was not encrypted with our key."""
_MECHANISM = 0x11000002
"""ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: one encrypts and the other does not."""


class LinkEvent(enum.Enum):
    """What happened to a connection."""

    OTHER_KEY = "the keys differ"
    ONLY_ONE_KEY = "one of the two has a key and the other has none"
    STRANGER = "what is there does not speak as it should"
    BROKEN_OFF = "the connection broke off before both had shown their keys"
    CLOSED = "the connection was closed"


def endpoint(address: str, port: int) -> str:
    """As zmq writes it."""
    return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"


class Connections:
    """What becomes of a socket's connections.

    Attributes:
        is_encrypted: they are to be.
    """

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self._socket = socket
        self.is_encrypted = socket.getsockopt(zmq.MECHANISM) == zmq.CURVE
        self._monitor = socket.get_monitor_socket(EVENTS)
        self._is_up = False

    async def next(self) -> LinkEvent:
        """Waits for the next event."""
        while True:
            event = await recv_monitor_message(self._monitor)
            if (found := self._sort(event["event"], event["value"])) is not None:
                return found

    def close(self) -> None:
        """Ends the watch."""
        self._socket.disable_monitor()

    def _sort(self, kind: int, value: int) -> LinkEvent | None:
        if kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._is_up = True
        elif kind == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            return {_CRYPTOGRAPHIC: LinkEvent.OTHER_KEY, _MECHANISM: LinkEvent.ONLY_ONE_KEY}.get(
                value, LinkEvent.STRANGER
            )
        elif kind == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            return LinkEvent.BROKEN_OFF
        elif kind == zmq.EVENT_DISCONNECTED and self._is_up:
            return LinkEvent.CLOSED
        return None


def in_pieces(payload: bytes) -> list[bytes]:
    """The frames in which a payload travels; none for an empty one."""
    return [payload[start : start + PIECE_BYTES] for start in range(0, len(payload), PIECE_BYTES)]


def in_one(pieces: Sequence[bytes]) -> bytes:
    """What `in_pieces` has cut."""
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def head_socket(context: zmq.asyncio.Context) -> zmq.asyncio.Socket:
    """The head's end, not yet bound: it hears all hosts, and sending to one that is gone fails at once.

    Raises:
        ConfigError: the cluster's key is too short.
    """
    socket = _socket(context, zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, CONNECTION_HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, CONNECTION_TIMEOUT_MS)
    if secret := cluster_secret("replicas"):
        socket.curve_server = True
        socket.curve_secretkey = z85.encode(secret)
    return socket


def host_socket(context: zmq.asyncio.Context) -> zmq.asyncio.Socket:
    """A host's end, not yet connected.

    Raises:
        ConfigError: the cluster's key is too short.
    """
    socket = _socket(context, zmq.DEALER)
    socket.setsockopt(zmq.RECONNECT_IVL, RETRY_MS)
    if secret := cluster_secret("replicas"):
        # The head's public key is nowhere to be read: who has it has the secret, and only the head can answer.
        socket.curve_serverkey = zmq.curve_public(z85.encode(secret))
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
    return socket


def _socket(context: zmq.asyncio.Context, kind: int) -> zmq.asyncio.Socket:
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    socket.set_hwm(0)
    return socket
