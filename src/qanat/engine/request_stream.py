"""One caller's choices on their way from the core to the caller."""

from __future__ import annotations

import asyncio

from qanat.core.errors import QanatError, SlowClientError
from qanat.core.outputs import RequestOutput
from qanat.core.request import Request
from qanat.engine.output_processor import OutputProcessor
from qanat.engine.tokenizer import Tokenizer

MAX_UNREAD_OUTPUTS = 8192
"""Outputs that may wait for a caller who does not read; beyond, the request ends with an error."""


class RequestStream:
    """Requests of one call, their text state, and the outputs that wait to be read.

    Attributes:
        request_id: as the caller knows it.
        requests: one per choice, by the id that the core knows.
        processors: of the choices that have had no finish reason yet, by the same ids.
    """

    def __init__(self, request_id: str, tokenizer: Tokenizer, requests: list[Request]) -> None:
        self.request_id = request_id
        self.requests = {request.request_id: request for request in requests}
        self.processors = {request.request_id: OutputProcessor(tokenizer, request) for request in requests}
        self._outputs: asyncio.Queue[RequestOutput | QanatError] = asyncio.Queue()
        self._is_failed = False

    @property
    def num_open(self) -> int:
        """Choices without a finish reason."""
        return len(self.processors)

    def choice_id(self, index: int) -> str | None:
        """The core's id of an open choice; None if it has ended."""
        for choice_id in self.processors:
            if self.requests[choice_id].choice_index == index:
                return choice_id
        return None

    def put(self, output: RequestOutput) -> bool:
        """Takes an output of the core. False, once, if the caller is so far behind that the call ends."""
        if self._is_failed:
            return True
        if self._outputs.qsize() < MAX_UNREAD_OUTPUTS:
            self._outputs.put_nowait(output)
            return True
        self.fail(SlowClientError("The client reads its stream too slowly; the request was ended."))
        return False

    def fail(self, error: QanatError) -> None:
        """Ends the call with an error, after what is still to be read."""
        if not self._is_failed:
            self._is_failed = True
            self._outputs.put_nowait(error)

    async def get(self) -> RequestOutput:
        """The next output.

        Raises:
            QanatError: the call has failed.
        """
        output = await self._outputs.get()
        if isinstance(output, QanatError):
            raise output
        return output
