"""The header with which a client chooses a replica, as in vLLM."""

from __future__ import annotations

from starlette.types import Scope

from qanat.core.errors import InvalidRequestError
from qanat.server.http import header

HEADER = "X-data-parallel-rank"
MAX_DIGITS = 9


def pinned_rank(scope: Scope) -> int | None:
    """The replica that is to compute a request; None if the client leaves it open.

    Raises:
        InvalidRequestError: the header is not a number.
    """
    text = header(scope, HEADER.lower().encode())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise InvalidRequestError(
            f"The header {HEADER} must be the number of a replica, got {text[:40]!r}.", param=HEADER
        )
    return int(text)
