"""Messages between two nodes over one TCP connection: both prove that they know the token, nobody sends it.

A frame is four bytes of length, the payload, and 32 bytes of HMAC-SHA256. Until both have proved themselves frames are
short and carry no HMAC. The key of a connection is made of the token and a random number of each end, so that nothing
can be replayed; a counter and the direction are part of every HMAC. Payloads are JSON; they are not secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from typing import Any, TypeGuard

MAX_FRAME_BYTES = 2**20
MAX_GREETING_BYTES = 1024
"""Longest frame from an end that has not proved itself."""
MAC_BYTES = 32
TOKEN_BYTES = 24
GREETING = "qanat-preflight-1"
GREETING_TIMEOUT_S = 10.0
MESSAGE_TIMEOUT_S = 60.0


class PeerError(Exception):
    """The other end is no agent, does not know the token, or stopped; the message says which."""


def new_token() -> str:
    """A token that works once; 192 random bits, in letters and digits alone, so that it can stand behind a flag."""
    return secrets.token_hex(TOKEN_BYTES)


class Wire:
    """One connection. `is_agent` tells the two ends apart in every proof."""

    def __init__(self, connection: socket.socket, token: str, *, is_agent: bool) -> None:
        self.connection = connection
        self.is_agent = is_agent
        self._token = token.encode()
        self._key = b""
        self._num_sent = 0
        self._num_received = 0
        connection.settimeout(GREETING_TIMEOUT_S)

    def greet(self) -> None:
        """Proves both ends to each other.

        Raises:
            PeerError: the other end is no agent, or has another token.
        """
        deadline = time.monotonic() + GREETING_TIMEOUT_S
        own = secrets.token_hex(16)
        self._send_plain({"greeting": GREETING, "nonce": own})
        greeting = self._receive_plain(deadline)
        other = greeting.get("nonce")
        if greeting.get("greeting") != GREETING or not _is_hex(other, len(own)):
            raise PeerError("what answers there is no agent of this version of qanat")
        nonces = (own, other) if self.is_agent else (other, own)
        if self.is_agent:
            # The end that came proves itself first: a stranger learns nothing from the agent.
            self._check_proof(self._receive_plain(deadline), "peer", nonces)
            self._send_plain({"proof": self._proof("agent", nonces)})
        else:
            self._send_plain({"proof": self._proof("peer", nonces)})
            self._check_proof(self._receive_plain(deadline), "agent", nonces)
        self._key = self._mac(self._token, "session", *nonces).digest()
        self.connection.settimeout(MESSAGE_TIMEOUT_S)

    def send(self, kind: str, **fields: Any) -> None:
        """Sends a message.

        Raises:
            PeerError: the connection is gone.
        """
        payload = json.dumps({"kind": kind, **fields}).encode()
        self._num_sent += 1
        proof = self._frame_mac(self.is_agent, self._num_sent, payload)
        self._send_all(struct.pack(">I", len(payload)) + payload + proof)

    def receive(self, kind: str) -> dict[str, Any]:
        """The next message, which must be of a kind.

        Raises:
            PeerError: it is of another kind, too long, changed on its way, or does not come.
        """
        (length,) = struct.unpack(">I", self.receive_exactly(4))
        if length > MAX_FRAME_BYTES:
            raise PeerError(f"a message of {length} bytes is too long")
        payload = self.receive_exactly(length)
        self._num_received += 1
        expected = self._frame_mac(not self.is_agent, self._num_received, payload)
        if not hmac.compare_digest(expected, self.receive_exactly(MAC_BYTES)):
            raise PeerError("a message was changed on its way")
        message = _decode(payload)
        if message.get("kind") != kind:
            raise PeerError(f"expected a message {kind}, got {message.get('kind')}")
        return message

    def send_bulk(self, num_bytes: int) -> None:
        """Sends zeros, to measure the way.

        Raises:
            PeerError: the connection is gone.
        """
        block = bytes(min(num_bytes, 2**18))
        left = num_bytes
        while left > 0:
            self._send_all(block[: min(left, len(block))])
            left -= len(block)

    def receive_exactly(self, num_bytes: int, deadline: float | None = None) -> bytes:
        """Bytes of the connection.

        Raises:
            PeerError: it ends before, or they do not come in time.
        """
        parts = bytearray()
        while len(parts) < num_bytes:
            if deadline is not None and time.monotonic() > deadline:
                raise PeerError("the other end does not answer")
            try:
                part = self.connection.recv(min(num_bytes - len(parts), 2**18))
            except TimeoutError:
                raise PeerError("the other end does not answer") from None
            except OSError as error:
                raise PeerError(f"the connection broke: {error.strerror or error}") from None
            if not part:
                raise PeerError("the other end closed the connection")
            parts += part
        return bytes(parts)

    def _send_plain(self, message: dict[str, str]) -> None:
        payload = json.dumps(message).encode()
        self._send_all(struct.pack(">I", len(payload)) + payload)

    def _receive_plain(self, deadline: float) -> dict[str, Any]:
        (length,) = struct.unpack(">I", self.receive_exactly(4, deadline))
        if length > MAX_GREETING_BYTES:
            raise PeerError("what answers there is no agent of this version of qanat")
        return _decode(self.receive_exactly(length, deadline))

    def _send_all(self, data: bytes) -> None:
        try:
            self.connection.sendall(data)
        except TimeoutError:
            raise PeerError("the other end does not read") from None
        except OSError as error:
            raise PeerError(f"the connection broke: {error.strerror or error}") from None

    def _proof(self, role: str, nonces: tuple[str, str]) -> str:
        return self._mac(self._token, role, *nonces).hexdigest()

    def _check_proof(self, message: dict[str, Any], role: str, nonces: tuple[str, str]) -> None:
        proof = message.get("proof")
        expected = self._proof(role, nonces)
        if not _is_hex(proof, len(expected)) or not hmac.compare_digest(expected, proof):
            raise PeerError("the other end does not know the token")

    def _frame_mac(self, is_from_agent: bool, number: int, payload: bytes) -> bytes:
        head = struct.pack(">BQ", is_from_agent, number)
        return hmac.new(self._key, head + payload, hashlib.sha256).digest()

    @staticmethod
    def _mac(key: bytes, *words: str) -> hmac.HMAC:
        return hmac.new(key, "|".join((GREETING, *words)).encode(), hashlib.sha256)


def _is_hex(value: object, length: int) -> TypeGuard[str]:
    """Whether a stranger's word is a number of so many hexadecimal digits; other text may not even have an encoding."""
    return isinstance(value, str) and len(value) == length and set(value) <= set("0123456789abcdef")


def _decode(payload: bytes) -> dict[str, Any]:
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError):
        raise PeerError("a message that is no JSON") from None
    if not isinstance(message, dict):
        raise PeerError("a message that is no object")
    return message
