"""Before every path: each request gets an id, and a key is asked for unless the path is listed as open."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qanat.core.errors import AuthenticationError, QanatError
from qanat.core.log_lines import request_id_of_task
from qanat.server.caller import CALLER_KEY, Caller
from qanat.server.endpoint import REQUEST_ID_KEY
from qanat.server.errors import ForbiddenError
from qanat.server.http import header, send_error
from qanat.server.keys import Keys
from qanat.server.service import usable_id

OPEN_PATHS = frozenset({"/health", "/ping", "/ready", "/version", "/metrics"})
"""Paths that need no key: what probes and scrapers read. Every other path does, known or not."""
ADMIN_PATHS = frozenset({"/abort", "/reset_prefix_cache", "/start_profile", "/stop_profile"})
"""Paths that change what the server does for others. They need an admin key, also where no other key is asked for."""

WATCH_PATHS = frozenset({"/requests"})
"""Paths that show what others do. They need an admin key, unless no key of any kind is set."""


class Gate:
    """Wraps the application.

    Args:
        app: what lies behind.
        keys: if they are required, one must be sent as a bearer token, else all requests may pass. An admin's is
            needed for ADMIN_PATHS and WATCH_PATHS and good for every other path too.
    """

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

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

        caller = await self._caller(scope)
        if isinstance(caller, QanatError):
            await send_error(send_with_id, caller)
            return
        scope[CALLER_KEY] = caller
        await self._app(scope, receive, send_with_id)

    async def _caller(self, scope: Scope) -> Caller | QanatError:
        """Who sends this request, or why it may not pass."""
        path, keys = scope["path"], self._keys
        scheme, _, key = (header(scope, b"authorization") or "").partition(" ")
        caller = await keys.find(key.strip()) if scheme.lower() == "bearer" else None
        if not self._needs_admin(path):
            if caller is None and keys.is_required and path not in OPEN_PATHS:
                return AuthenticationError("The API key is missing or wrong.")
            return caller or keys.anonymous
        if caller is not None and caller.is_admin:
            return caller
        if not keys.has_admins:
            return ForbiddenError(
                f"{path} is switched off: no admin key is set (--admin-api-key, or admin in --api-keys-file)."
            )
        if caller is not None:
            return ForbiddenError(f"{path} needs an admin key (--admin-api-key), not an API key.")
        return AuthenticationError("The admin key is missing or wrong.")

    def _needs_admin(self, path: str) -> bool:
        if path in WATCH_PATHS:
            return self._keys.is_required or self._keys.has_admins
        return path in ADMIN_PATHS
