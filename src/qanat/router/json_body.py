"""Bodies of requests as JSON: all that engines take is understood, and what that may cost is bounded.

Decoding builds an object for each value, and nobody else is served meanwhile. A body that would take too long is read
for a few fields by which an engine is chosen; to pass over the rest costs little.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

SMALL_BYTES = 256 << 10
"""What is not longer is decoded, whatever it holds."""
MAX_COST_NS = 100_000_000
# Of one value each, measured with the collector of garbage at work; all are bounds from above.
_CONTAINER_NS, _NAME_NS, _ITEM_NS = 400, 200, 50
# Half a character, or a number that JSON does not have: Python's reader takes both, and so do engines. In a text they
# may stand for themselves, which costs no more than the slower way.
_ODD = (b"\\ud", b"\\uD", b"NaN", b"Infinity")
_MAX_VALUE_BYTES = 4096


class _Named(msgspec.Struct):
    """What is read of a body that is not decoded: what `qanat.router.calls.read_call` asks for."""

    model: msgspec.Raw = msgspec.Raw()
    stream: msgspec.Raw = msgspec.Raw()
    n: msgspec.Raw = msgspec.Raw()
    max_completion_tokens: msgspec.Raw = msgspec.Raw()
    max_tokens: msgspec.Raw = msgspec.Raw()
    max_output_tokens: msgspec.Raw = msgspec.Raw()
    priority: msgspec.Raw = msgspec.Raw()
    user: msgspec.Raw = msgspec.Raw()


_NAMED = msgspec.json.Decoder(_Named)


def decoded(body: bytes) -> dict[str, Any] | None:
    """The object that the body is; None if it is none, or one that takes too long."""
    if not body or body.lstrip()[:1] != b"{" or is_heavy(body):
        return None
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        fields = _loosely_decoded(body)
    return fields if isinstance(fields, dict) else None


def named(body: bytes) -> dict[str, Any]:
    """The fields by which an engine is chosen, of a body that is not decoded; those that are there and short."""
    if body.lstrip()[:1] != b"{":
        return {}
    try:
        found = _NAMED.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    values = {}
    for name in _Named.__struct_fields__:
        raw = bytes(getattr(found, name))
        if raw and len(raw) <= _MAX_VALUE_BYTES:
            values[name] = (decoded(b'{"value":%b}' % raw) or {}).get("value")
    return values


def encoded(value: Any, body: bytes = b"") -> bytes:
    """The JSON of a value of decoded fields.

    Args:
        value: anything.
        body: that it came from; where that may hold what is no JSON proper, so does the result.
    """
    if not _is_odd(body):
        try:
            return msgspec.json.encode(value)
        except ValueError:
            pass
    return json.dumps(value).encode("ascii")


def is_heavy(body: bytes) -> bool:
    """Decoding it would take too long."""
    if len(body) <= SMALL_BYTES:
        return False
    num_containers = body.count(b"{") + body.count(b"[")
    cost_ns = num_containers * _CONTAINER_NS + body.count(b":") * _NAME_NS + body.count(b",") * _ITEM_NS
    return cost_ns > MAX_COST_NS


def _is_odd(body: bytes) -> bool:
    return any(mark in body for mark in _ODD)


def _loosely_decoded(body: bytes) -> Any:
    if not _is_odd(body):
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
