"""Token counts in every chunk: asked of vLLM so that a break is known to a token, and kept from who did not ask."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from qanat.router.http.sse import event_data
from qanat.router.resume_qanat import wants_usage, wants_usage_chunk

_NAME = b'"usage"'
# Counts as engines write them: whole numbers and null under plain names, and one object of these in another.
_FLAT = rb'[^{}\[\]"]*(?:"\w*"[^{}\[\]"]*)*'
_COUNTS = re.compile(rb'"usage"\s*:\s*(\{%b(?:\{%b\}%b)*\})' % (_FLAT, _FLAT, _FLAT))
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL = msgspec.Raw(b"null")
_COMPLETION = "text_completion"


class RunningCounts:
    """What one request's stream is asked for and what of it is hidden.

    Args:
        fields: of the request.

    Attributes:
        changes: to the body; empty if the client itself asks for all of it, or for something that is no options.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        options = fields.get("stream_options")
        self.changes: dict[str, Any] = {}
        self._shows_running = wants_usage(dict(fields), is_running=True)
        self._shows_total = wants_usage_chunk(dict(fields))
        is_open = options is None or isinstance(options, dict)
        if is_open and not (self._shows_running and self._shows_total):
            asked = {**(options or {}), "include_usage": True, "continuous_usage_stats": True}
            self.changes["stream_options"] = asked

    def hides(self, *, has_choices: bool) -> bool:
        """Chunks of this kind get their counts by the router's own wish."""
        return bool(self.changes) and not (self._shows_running if has_choices else self._shows_total)

    def without(self, event: bytes, kind: object) -> bytes:
        """An event that has choices, as it is without counts: chats leave the field out, completions have null.

        Only the chunk's own counts go, with all that they hold; what is called so deeper in it is the client's.

        Args:
            event: of one line, or of more, whose payload is a chunk that has counts.
            kind: the chunk's `object`.
        """
        # Inside a JSON text a quotation mark has a backslash before it. So what is there once is the name of the
        # chunk's own field, which is there: unless that is spelt with escapes.
        is_plain = event.count(_NAME) == 1 and b"\\u00" not in event and event.find(b"\n") == len(event) - 2
        found = _COUNTS.search(event) if is_plain else None
        if found is None:
            return _rewritten(event_data(event) or b"{}", kind)
        rest = event[found.end() :]
        if kind == _COMPLETION:
            return b"%bnull%b" % (event[: found.start(1)], rest)
        before = event[: found.start()].rstrip()
        if before.endswith(b","):
            return before[:-1] + rest
        return before + rest.lstrip().removeprefix(b",")

    def strip(self, fields: dict[str, Any]) -> None:
        """The same for one that is decoded."""
        if fields.get("object") == _COMPLETION:
            fields["usage"] = None
        else:
            fields.pop("usage", None)


def _rewritten(data: bytes, kind: object) -> bytes:
    """The event of a chunk without counts, each other value as it was; for any chunk, and slower."""
    fields = _FIELDS.decode(data)
    if kind == _COMPLETION:
        fields["usage"] = _NULL
    else:
        fields.pop("usage", None)
    # Line ends are only between values of JSON, and would end the event's line.
    return b"data: %b\n\n" % msgspec.json.encode(fields).replace(b"\n", b" ").replace(b"\r", b" ")
