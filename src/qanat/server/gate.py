"""Before every path: each request gets an id, and a key is asked for unless the path is listed as open."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qanat.config.engine_config import ServerOptions
from qanat.core.errors import AuthenticationError, ConfigError, QanatError
from qanat.server.endpoint import REQUEST_ID_KEY
from qanat.server.errors import ForbiddenError
from qanat.server.http import header, send_error
from qanat.server.logs import request_id_of_task
from qanat.server.service import usable_id

OPEN_PATHS = frozenset({"/health", "/ping", "/ready", "/version", "/metrics"})
"""Paths that need no key: what probes and scrapers read. Every other path does, known or not."""
ADMIN_PATHS = frozenset({"/abort"})
"""Paths that change what the server does for others. They need an admin key, also where no other key is asked for."""


class Gate:
    """Wraps the application.

    Args:
        app: what lies behind.
        api_keys: keys of which one must be sent as a bearer token; none means that all requests may pass.
        admin_keys: keys for ADMIN_PATHS, good for every other path too; none means that nobody may use those.
    """

    def __init__(self, app: ASGIApp, api_keys: Sequence[str], admin_keys: Sequence[str] = ()) -> None:
        self._app = app
        self._digests = [_digest(key) for key in api_keys]
        self._admin_digests = [_digest(key) for key in admin_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = usable_id(header(scope, b"x-request-id"))
        scope[REQUEST_ID_KEY] = request_id
        request_id_of_task.set(request_id)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await send_error(send_with_id, refusal)
            return
        await self._app(scope, receive, send_with_id)

    def _refusal(self, scope: Scope) -> QanatError | None:
        """Why this request may not pass; None if it may."""
        path = scope["path"]
        if path in OPEN_PATHS or not (self._digests or path in ADMIN_PATHS):
            return None
        scheme, _, key = (header(scope, b"authorization") or "").partition(" ")
        digest = _digest(key.strip()) if scheme.lower() == "bearer" else b""
        # All keys are compared, each in constant time, so that timing tells nothing about any of them.
        is_user = sum(hmac.compare_digest(digest, known) for known in self._digests) > 0
        is_admin = sum(hmac.compare_digest(digest, known) for known in self._admin_digests) > 0
        if path not in ADMIN_PATHS:
            return None if is_user or is_admin else AuthenticationError("The API key is missing or wrong.")
        if is_admin:
            return None
        if not self._admin_digests:
            return ForbiddenError(f"{path} is switched off: the server was started without --admin-api-key.")
        if is_user:
            return ForbiddenError(f"{path} needs the admin key (--admin-api-key), not an API key.")
        return AuthenticationError("The admin key is missing or wrong.")


def check_keys(options: ServerOptions) -> None:
    """Checks the keys, before anything is loaded.

    Raises:
        ConfigError: a key is empty, so that a request without one would have it, or a user has an operator's key.
    """
    for flag, keys in (("--api-key", options.api_key), ("--admin-api-key", options.admin_api_key)):
        if not all(key.strip() for key in keys):
            raise ConfigError(f"{flag} is empty; give a key, or leave the flag out.", param=flag)
    if set(options.api_key) & set(options.admin_api_key):
        raise ConfigError("--admin-api-key must differ from every --api-key.", param="--admin-api-key")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
