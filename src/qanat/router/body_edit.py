"""Changes to a request's JSON body: a few bytes put in where that is enough, encoded again where it is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from qanat.router.json_body import encoded

_WITHDRAWN = object()


def withdrawn() -> Any:
    """The value that takes a field out in `edited`."""
    return _WITHDRAWN


def edited(body: bytes, fields: Mapping[str, Any], changes: Mapping[str, Any]) -> bytes:
    """The body with these fields set, or taken out.

    Args:
        body: as the client sent it.
        fields: the same, decoded.
        changes: new values by name; `withdrawn()` takes a field out.
    """
    if not changes:
        return body
    is_only_more = all(name not in fields and value is not _WITHDRAWN for name, value in changes.items())
    begin = body.find(b"{")
    if is_only_more and fields and begin >= 0:
        more = msgspec.json.encode(dict(changes))
        return b"".join((body[: begin + 1], more[1:-1], b",", body[begin + 1 :]))
    whole = {**fields, **changes}
    return encoded({name: value for name, value in whole.items() if value is not _WITHDRAWN}, body)
