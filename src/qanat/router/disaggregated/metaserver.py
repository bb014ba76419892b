"""Where decoders say that they are ready for a cache to be pushed: /v1/metaserver of the router."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import msgspec

from qanat.core.errors import InvalidRequestError, NotFoundError, QanatError
from qanat.router.http.exchange import Downstream, respond
from qanat.router.model import Call

PATH = "/v1/metaserver"

Push = Callable[[dict[str, Any]], Awaitable[None]]
"""Has a prefiller push the cache to where these parameters say. Raises UpstreamError."""


class UnknownRequestError(NotFoundError):
    """A decoder asks for the cache of a request that is not, or no longer, waiting."""

    code = "unknown_request"


class OtherPushError(QanatError):
    """The cache of a request is already being pushed, to another place than is asked for now."""

    code = "other_push"
    status = 409


def new_token() -> str:
    """A secret for one try of one request: who does not know it gets no cache."""
    return secrets.token_urlsafe(24)


def with_token(url: str, token: str) -> str:
    """The metaserver's URL, as it is given to the decoder of one request alone."""
    return f"{url}{'&' if '?' in url else '?'}token={token}"


@dataclass(slots=True)
class _Waiting:
    request_ids: frozenset[str]
    push: Push
    params: dict[str, Any] | None = None
    task: asyncio.Task[None] | None = None


class Metaserver:
    """Requests that wait for their decoder to ask, by the secret in the URL that it was given.

    A decoder asks up to three times; only the first begins the push, the others wait for the same end.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    @property
    def num_waiting(self) -> int:
        """Requests whose decoder may still ask."""
        return len(self._waiting)

    def expect(self, token: str, request_ids: Iterable[str], push: Push) -> None:
        """From now on who knows the token may ask for this request, by any of these ids."""
        self._waiting[token] = _Waiting(frozenset(request_ids), push)

    def forget(self, token: str) -> None:
        """The request is over; a push that still runs is ended."""
        waiting = self._waiting.pop(token, None)
        if waiting is not None and waiting.task is not None:
            waiting.task.cancel()

    def check(self, call: Call) -> None:
        """Raises UnknownRequestError if nobody waits with the token of the URL; needs no body."""
        self._of(call)

    def _of(self, call: Call) -> _Waiting:
        waiting = self._waiting.get(_token_of(call.target))
        if waiting is None:
            raise UnknownRequestError("no request waits for its cache with this token", param="request_id")
        return waiting

    async def __call__(self, call: Call, downstream: Downstream) -> None:
        """Answers a decoder once the prefiller is done: 200, or an error if it failed.

        Raises:
            UnknownRequestError: nobody waits under this id with the token of the URL.
            InvalidRequestError: the body is not what decoders send.
            OtherPushError: a push with other parameters has begun.
            UpstreamError: the prefiller failed.
        """
        waiting = self._of(call)
        params = _params_of(call.body)
        request_id = params["request_id"]
        if request_id not in waiting.request_ids:
            raise UnknownRequestError(f"no request {request_id!r} waits for its cache", param="request_id")
        if waiting.task is None:
            waiting.params = params
            waiting.task = asyncio.ensure_future(waiting.push(params))
        elif waiting.params != params:
            raise OtherPushError(f"the cache of {request_id!r} is being pushed elsewhere", param="request_id")
        task = waiting.task
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise UnknownRequestError(f"request {request_id!r} was ended", param="request_id") from None
        respond(downstream, 200, b'{"status":"ok"}')


def _token_of(target: str) -> str:
    return parse_qs(target.partition("?")[2]).get("token", [""])[0]


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
