"""Which headers travel on: all but those that speak of one connection (RFC 9110, section 7.6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus

from qanat.router.model import Header

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    )
)
# The transport writes these itself: the engine's address, the length of a body that is complete, and an
# `Expect` which the front has met already.
_OWN_OF_REQUEST = HOP_BY_HOP | {b"host", b"content-length", b"expect"}

# End to end by their meaning: a `Connection` that names them would take away what the router itself has set.
_NEVER_NAMED = frozenset(
    (
        b"authorization",
        b"x-api-key",
        b"x-request-id",
        b"content-type",
        b"content-length",
        b"content-encoding",
        b"host",
    )
)

_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


def without_hop_by_hop(headers: Iterable[Header]) -> list[Header]:
    """The headers that go on to the other side."""
    return _filtered(headers, HOP_BY_HOP)


def _filtered(headers: Iterable[Header], left_out: frozenset[bytes]) -> list[Header]:
    kept: list[Header] = []
    named: set[bytes] | None = None
    for header in headers:
        if header[0] not in left_out:
            kept.append(header)
        elif header[0] == b"connection" and header[1].lower() not in (b"keep-alive", b"close"):
            named = named or set()
            named.update(token.strip().lower() for token in header[1].split(b","))
    if named:
        named -= _NEVER_NAMED
        kept = [header for header in kept if header[0] not in named]
    return kept


def request_head(
    method: str, target: str, host: bytes, headers: Sequence[Header], num_body_bytes: int
) -> bytes:
    """Request line and headers for an engine; `headers` may hold anything that a client sent."""
    lines = [b"%b %b HTTP/1.1\r\nhost: %b" % (method.encode("ascii"), target.encode("latin-1"), host)]
    lines += [b"%b: %b" % header for header in _filtered(headers, _OWN_OF_REQUEST)]
    if num_body_bytes or method not in ("GET", "HEAD", "OPTIONS", "DELETE"):
        lines.append(b"content-length: %d\r\n\r\n" % num_body_bytes)
    else:
        lines.append(b"\r\n")
    return b"\r\n".join(lines)


def status_line(status: int) -> bytes:
    """The first line of an answer, with its line end."""
    return b"HTTP/1.1 %d %b\r\n" % (status, _REASONS.get(status, b""))
