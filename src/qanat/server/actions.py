"""What only an operator may do to a running server; the gate asks for the admin key before any of it."""

from __future__ import annotations

import msgspec

from qanat.server.caller import Caller
from qanat.server.decoding import decode_request
from qanat.server.errors import UnknownRequestError
from qanat.server.service import Service


class AbortRequestBody(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Body of /abort: the X-Request-Id of a request, or the `id` of its answer."""

    request_id: str


class AbortAnswer(msgspec.Struct, frozen=True):
    """Answer of /abort.

    Attributes:
        request_id: as it was asked for.
        num_aborted: prompts that were still running; each ends at the engine's next step.
    """

    request_id: str
    num_aborted: int


class ActionEndpoints:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def abort(self, body: bytes, _: Caller) -> AbortAnswer:
        """POST /abort: ends every running request with this id.

        Raises:
            InvalidRequestError: the body has the wrong shape.
            UnknownRequestError: nothing runs under this id.
        """
        request_id = decode_request(body, AbortRequestBody, {}).request_id
        engine = self._service.engine
        aborted = [await engine.abort(engine_id) for engine_id in self._service.running.find(request_id)]
        if not any(aborted):
            raise UnknownRequestError(
                f"No request with the id {request_id!r} is running here.", param="request_id"
            )
        return AbortAnswer(request_id, sum(aborted))
