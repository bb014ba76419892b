"""The seam between transport and relay: what a handler is given to answer its client with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from qanat.core.errors import QanatError
from qanat.router.model import Call, Header


class Flow(Protocol):
    """Someone who reads and may be slow. `set_listener` is told True when to pause and False when to go on."""

    def set_listener(self, listener: Callable[[bool], None] | None) -> None:
        """Registers who is told; a listener given while the reader is slow hears True at once."""

    def flush(self) -> None:
        """Sends what was held back to be sent with more."""


class Downstream(Flow, Protocol):
    """The answer to one call. Nothing here waits but `drain`: writing is a plain call, made from any callback.

    When the client goes away, the handler's task is cancelled at once; what is written after that is dropped.
    """

    @property
    def status(self) -> int:
        """The status that was sent; 0 before `start`."""

    @property
    def is_started(self) -> bool:
        """A status was sent, so that another can no longer be."""

    @property
    def is_ended(self) -> bool:
        """The answer is complete."""

    @property
    def is_gone(self) -> bool:
        """The client closed the connection or lost it."""

    @property
    def num_body_bytes(self) -> int:
        """Bytes of the body written so far."""

    def start(self, status: int, headers: Sequence[Header]) -> None:
        """Status and headers, hop-by-hop ones left out.

        With a content-length the body must have that length; without, it goes out chunked. The head leaves
        with the first piece of the body, or when the event loop next comes round.
        """

    def write(self, data: bytes) -> None:
        """A piece of the body; a single write to the socket."""

    async def drain(self) -> None:
        """Returns when the client has read so much that more may be written."""

    def end(self) -> None:
        """The body is complete."""

    def abort(self) -> None:
        """Cuts the connection, so that the client can tell a broken answer from a complete one."""


Handler = Callable[[Call, Downstream], Awaitable[None]]
"""Answers one call. If it raises or returns without `end`, the client gets a 500, or a cut connection if started."""


def respond(
    downstream: Downstream,
    status: int,
    body: bytes,
    content_type: bytes = b"application/json",
    headers: Sequence[Header] = (),
) -> None:
    """A whole answer at once."""
    head = [(b"content-type", content_type), *headers, (b"content-length", b"%d" % len(body))]
    downstream.start(status, head)
    downstream.write(body)
    downstream.end()


def error_body(message: str, kind: str, code: str, param: str | None = None) -> bytes:
    """The error object that clients of OpenAI's API expect."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def respond_error(downstream: Downstream, error: QanatError, headers: Sequence[Header] = ()) -> None:
    """An error of the router itself as an answer, with Retry-After where it is known."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    if error.retry_after_s:
        headers = [*headers, (b"retry-after", b"%d" % error.retry_after_s)]
    body = error_body(error.message, kind, error.code, error.param)
    respond(downstream, error.status, body, headers=headers)
