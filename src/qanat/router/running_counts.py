"""Token counts in every chunk: asked of vLLM so that a break is known to a token, and kept from who did not ask."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from qanat.router.resume_qanat import wants_usage, wants_usage_chunk

# A quotation mark inside a JSON text has a backslash before it, so that this can only be the field itself. Counts hold
# numbers, and objects of numbers.
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')
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
        """An event that has choices, as it is without counts: chats leave the field out, completions have null."""
        found = _USAGE.search(event)
        if found is None:
            return event
        if kind == _COMPLETION:
            return b"%bnull%b" % (event[: found.start(1)], event[found.end() :])
        before = event[: found.start()].rstrip()
        if before.endswith(b","):
            return before[:-1] + event[found.end() :]
        return before + event[found.end() :].lstrip().removeprefix(b",")

    def strip(self, fields: dict[str, Any]) -> None:
        """The same for one that is decoded."""
        if fields.get("object") == _COMPLETION:
            fields["usage"] = None
        else:
            fields.pop("usage", None)
