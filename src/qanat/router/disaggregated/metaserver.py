"""Where decoders say that they are ready for a cache to be pushed: /v1/metaserver of the router."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from qanat.core.errors import InvalidRequestError, NotFoundError
from qanat.router.http.exchange import Downstream, respond
from qanat.router.model import Call

PATH = "/v1/metaserver"

Push = Callable[[dict[str, Any]], Awaitable[None]]
"""Has a prefiller push the cache to where these parameters say. Raises UpstreamError."""


class UnknownRequestError(NotFoundError):
    """A decoder asks for the cache of a request that is not, or no longer, waiting."""

    code = "unknown_request"


class Metaserver:
    """Requests that wait for their decoder to ask, by the id that it knows them by.

    A decoder asks up to three times; only the first begins the push, the others wait for the same end.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Push] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    @property
    def num_waiting(self) -> int:
        """Requests whose decoder may still ask."""
        return len(self._waiting)

    def expect(self, request_ids: Iterable[str], push: Push) -> None:
        """From now on a decoder may ask for this request, by any of these ids."""
        for request_id in request_ids:
            self._waiting[request_id] = push

    def forget(self, request_ids: Iterable[str]) -> None:
        """The request is over; a push that still runs is ended."""
        for request_id in request_ids:
            self._waiting.pop(request_id, None)
            task = self._running.pop(request_id, None)
            if task is not None:
                task.cancel()

    async def __call__(self, call: Call, downstream: Downstream) -> None:
        """Answers a decoder once the prefiller is done: 200, or an error if it failed.

        Raises:
            InvalidRequestError: the body is not what decoders send.
            UnknownRequestError: nobody waits under this id.
            UpstreamError: the prefiller failed.
        """
        params = _params_of(call.body)
        request_id = params["request_id"]
        push = self._waiting.get(request_id)
        if push is None:
            raise UnknownRequestError(f"no request {request_id!r} waits for its cache", param="request_id")
        task = self._running.get(request_id)
        if task is None:
            task = self._running[request_id] = asyncio.ensure_future(push(params))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise UnknownRequestError(f"request {request_id!r} was ended", param="request_id") from None
        respond(downstream, 200, b'{"status":"ok"}')


def _params_of(body: bytes) -> dict[str, Any]:
    try:
        params = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        params = None
    if not isinstance(params, dict) or not isinstance(params.get("request_id"), str):
        raise InvalidRequestError(
            "the body must be a JSON object with request_id, a text", param="request_id"
        )
    return params
