"""What one client may send, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrontLimits:
    """Bounds of a client's connection.

    Attributes:
        max_connections: clients connected at once; one more is told so with 503. Every stream needs two open files.
        max_head_bytes: request line and headers; more is refused with 431.
        max_body_bytes: one request's body; more is refused with 413.
        max_unchecked_bytes: one request's body, if the request itself may not be made: its head is looked at before.
        max_pipelined: requests read ahead on a connection while one runs; then the socket is left unread.
        max_ahead_bytes: of bodies, read ahead on a connection while a call runs; then the socket is left unread.
        max_unsent_bytes: what may wait for a slow client before the engine behind it is left unread.
        idle_timeout_s: between two requests.
        head_timeout_s: from the first byte of a request to the end of its headers.
        body_timeout_s: between two pieces of a request's body.
        stall_timeout_s: a client that reads nothing of its answer for so long is cut off.
        linger_s: how long what a refused client still sends is read, so that it sees the refusal.
    """

    max_connections: int = 16384
    max_head_bytes: int = 65536
    max_body_bytes: int = 64 << 20
    max_unchecked_bytes: int = 65536
    max_pipelined: int = 16
    max_ahead_bytes: int = 1 << 20
    max_unsent_bytes: int = 65536
    idle_timeout_s: float = 75.0
    head_timeout_s: float = 30.0
    body_timeout_s: float = 60.0
    stall_timeout_s: float = 120.0
    linger_s: float = 2.0
