"""The outermost layer: every request gets an id, and a key is asked for unless the path is listed as open."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qanat.core.errors import AuthenticationError
from qanat.server.endpoint import REQUEST_ID_KEY
from qanat.server.http import header, send_error
from qanat.server.service import usable_id

OPEN_PATHS = frozenset({"/health", "/ping", "/ready", "/version", "/metrics"})
"""Paths that need no key: what probes and scrapers read. Every other path does, known or not."""


class Gate:
    """Wraps the application.

    Args:
        app: what lies behind.
        api_keys: keys of which one must be sent as a bearer token; none means that all requests may pass.
    """

    def __init__(self, app: ASGIApp, api_keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key) for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = usable_id(header(scope, b"x-request-id"))
        scope[REQUEST_ID_KEY] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        if self._digests and scope["path"] not in OPEN_PATHS and not self._is_allowed(scope):
            await send_error(send_with_id, AuthenticationError("The API key is missing or wrong."))
            return
        await self._app(scope, receive, send_with_id)

    def _is_allowed(self, scope: Scope) -> bool:
        scheme, _, key = (header(scope, b"authorization") or "").partition(" ")
        if scheme.lower() != "bearer":
            return False
        digest = _digest(key.strip())
        # All keys are compared, each in constant time, so that timing tells nothing about any of them.
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
