"""A TCP connection between two hosts of a group: messages, silence, and the proof that both know the cluster's key."""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
import time

import msgspec

from qanat.executor.node_messages import Answer, Challenge, Farewell, NodeMessage, Welcome

BEAT_S = 1.5
"""Who has nothing else to say says so after this time."""
SILENCE_S = 7.5
"""Who says nothing for so long is gone: its host has ended, stands still, or cannot be reached."""
GREETING_S = 5.0
LENGTH_BYTES = 8
MAX_GREETING_BYTES = 2**16
MAX_REPORT_BYTES = 2**20
"""Of the first message after the greeting; without a key anybody gets so far."""
MAX_MESSAGE_BYTES = 2**30
NONCE_BYTES = 32
DIGEST = "sha256"
KEY_PURPOSE = "tensor-parallel"


class LineLostError(ConnectionError):
    """The other end is gone; the text says how, to stand behind its name."""


class RefusedError(Exception):
    """The other end cannot be taken, or does not take this one; the text says why."""


class NodeLine:
    """One end.

    Args:
        connection: a connected TCP socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.settimeout(GREETING_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        self._max_bytes = MAX_GREETING_BYTES
        self._greet_by_s: float | None = time.monotonic() + GREETING_S
        self._decoder = msgspec.msgpack.Decoder(NodeMessage)

    def fileno(self) -> int:
        """To wait for."""
        return self._connection.fileno()

    def send(self, message: NodeMessage) -> None:
        """Sends a message; from any thread.

        Raises:
            LineLostError: the other end is gone, or takes nothing.
        """
        payload = msgspec.msgpack.encode(message)
        try:
            with self._lock:
                self._connection.sendall(len(payload).to_bytes(LENGTH_BYTES, "little") + payload)
        except OSError as error:
            raise _lost(error, self._connection.gettimeout()) from None

    def receive(self) -> NodeMessage:
        """The next message.

        Raises:
            LineLostError: the other end is gone, is silent, or says what nobody understands.
        """
        size = int.from_bytes(self._read(LENGTH_BYTES), "little")
        if size > self._max_bytes:
            raise LineLostError("says what is no message")
        try:
            return self._decoder.decode(self._read(size))
        except msgspec.DecodeError:
            raise LineLostError("says what is no message") from None

    def greet(self, key: bytes | None) -> None:
        """Node 0's side of the proof that both know the cluster's key; `admit` has to follow.

        Raises:
            LineLostError, RefusedError: the other end does not.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        self.send(Challenge(nonce, key is not None))
        answer = self.receive()
        if not isinstance(answer, Answer):
            raise LineLostError("says what is no answer")
        if key is not None and not hmac.compare_digest(
            answer.proof, _proof(key, "node", nonce, answer.nonce)
        ):
            words = "does not know QANAT_CLUSTER_KEY; give every process of the service the same"
            self.send(Farewell(f"this process {words}"))
            raise RefusedError(words)
        self.send(Welcome(_proof(key, "head", answer.nonce, nonce) if key is not None else b""))
        self._max_bytes = MAX_REPORT_BYTES
        self._greet_by_s = time.monotonic() + GREETING_S

    def introduce(self, key: bytes | None) -> None:
        """The other side of `greet`.

        Raises:
            LineLostError, RefusedError: node 0 does not know the key, or does not take this one.
        """
        challenge = self.receive()
        if not isinstance(challenge, Challenge):
            raise LineLostError("says what is no greeting")
        if key is not None and not challenge.has_key:
            raise RefusedError("node 0 has no QANAT_CLUSTER_KEY; give every process of the service the same")
        nonce = secrets.token_bytes(NONCE_BYTES)
        self.send(Answer(nonce, _proof(key, "node", challenge.nonce, nonce) if key is not None else b""))
        welcome = self.receive()
        if isinstance(welcome, Farewell):
            raise RefusedError(welcome.words)
        if not isinstance(welcome, Welcome):
            raise LineLostError("says what is no welcome")
        if key is not None and not hmac.compare_digest(
            welcome.proof, _proof(key, "head", nonce, challenge.nonce)
        ):
            raise RefusedError("node 0 does not know QANAT_CLUSTER_KEY; give every process the same")
        self.admit()

    def admit(self) -> None:
        """Takes the other end for one of the group: from now on messages may be long and come when they come."""
        self._max_bytes = MAX_MESSAGE_BYTES
        self._greet_by_s = None
        self._connection.settimeout(SILENCE_S)

    def close(self) -> None:
        """Hangs up; whoever waits for a message in another thread notices."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._connection.recv(size - len(data))
            except OSError as error:
                raise _lost(error, self._connection.gettimeout()) from None
            if not part:
                raise LineLostError("hung up")
            if self._greet_by_s is not None and time.monotonic() > self._greet_by_s:
                raise LineLostError("takes too long to greet")  # byte by byte, it would hold a place for ever
            data += part
        return bytes(data)


def group_secret(key: bytes | None, seed: bytes) -> bytes:
    """By which the ranks of one group know each other: it follows from the cluster's key and from random bytes.

    Without a key the random bytes are the secret, and whoever reads the line knows it.
    """
    return seed if key is None else hmac.digest(key, b"group\0" + seed, DIGEST)


def _lost(error: OSError, timeout_s: float | None) -> LineLostError:
    if isinstance(error, TimeoutError):
        return LineLostError(f"has been silent for {timeout_s:.1f} s")
    return LineLostError(f"hung up ({error.strerror or error})")


def _proof(key: bytes, side: str, first: bytes, second: bytes) -> bytes:
    return hmac.digest(key, side.encode() + b"\0" + first + second, DIGEST)
