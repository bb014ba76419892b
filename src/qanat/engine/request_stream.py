"""One caller's choices on their way from the core to the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from qanat.core.errors import QanatError, SlowClientError
from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason, Request
from qanat.engine.output_processor import OutputProcessor
from qanat.engine.replica import Replica
from qanat.engine.tokenizer import Tokenizer

MAX_UNREAD_OUTPUTS = 8192
"""Outputs that may wait for a caller who does not read; beyond, the request ends with an error."""


class RequestStream:
    """Requests of one call, their text state, and the outputs that wait to be read.

    A caller who keeps up gets every output by itself. One who does not gets all that waits of a choice in one piece,
    so that a server with much to do says more at a time instead of falling behind.

    Attributes:
        request_id: as the caller knows it.
        requests: one per choice, by the id that the core knows.
        processors: of the choices that have had no finish reason yet, by the same ids.
        preparation: what has to be done before the core is asked; None when it is done.
        is_broken_off: the call ended during it; the core is not to be asked.
        has_begun: the caller was given tokens: what goes wrong with a choice is its own end from now on.
        has_cost: a form was compiled for it, which is work even if the core refuses it then.
        rank: of the replica that is to compute it; None for any.
        home: the replica that computes it; None as long as none has been asked.
        tried_ranks: of replicas that had no room for it.
    """

    def __init__(
        self, request_id: str, tokenizer: Tokenizer, requests: list[Request], rank: int | None = None
    ) -> None:
        self.request_id = request_id
        self.rank = rank
        self.home: Replica | None = None
        self.tried_ranks: set[int] = set()
        self._tokenizer = tokenizer
        self.requests = {request.request_id: request for request in requests}
        self.processors = {request.request_id: OutputProcessor(tokenizer, request) for request in requests}
        self.preparation: asyncio.Task[str] | None = None
        self.is_broken_off = False
        self.has_begun = False
        self.has_cost = False
        self._unread: dict[str, list[RequestOutput]] = {}
        self._num_unread = 0
        self._reader: asyncio.Future[None] | None = None
        self._failure: QanatError | None = None

    def note_cost(self) -> None:
        """Says that work begins for it which the core does not see."""
        self.has_cost = True

    def begin_anew(self) -> None:
        """Forgets what came of the requests: they are sent to another core, before the caller was given anything."""
        self.processors = {
            choice: OutputProcessor(self._tokenizer, one) for choice, one in self.requests.items()
        }
        self._unread.clear()
        self._num_unread = 0

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
        if self._failure is not None:
            return True
        if self._num_unread >= MAX_UNREAD_OUTPUTS:
            self.fail(SlowClientError("The client reads its stream too slowly; the request was ended."))
            return False
        self._num_unread += 1
        waiting = self._unread.get(output.request_id)
        if waiting is None:
            self._unread[output.request_id] = [output]
            self._wake()
        else:
            waiting.append(output)
        return True

    def end_preparation(self) -> bool:
        """Breaks off what is done before the core is asked. False if there is nothing of the kind any more."""
        if self.preparation is None:
            return False
        self.preparation.cancel()
        self.is_broken_off = True
        return True

    def fail(self, error: QanatError) -> None:
        """Ends the call with an error, after what is still to be read."""
        if self._failure is None:
            self._failure = error
            self._wake()

    async def get(self) -> RequestOutput:
        """What waits of one choice, or the next output.

        Raises:
            QanatError: the call has failed.
        """
        while not self._unread:
            if self._failure is not None:
                raise self._failure
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        choice_id, outputs = next(iter(self._unread.items()))
        del self._unread[choice_id]
        if len(outputs) > 1 and outputs[-1].finish_reason is FinishReason.ERROR:
            self._unread[choice_id] = [outputs.pop()]  # callers raise it; the tokens before it are theirs
        self._num_unread -= len(outputs)
        return outputs[0] if len(outputs) == 1 else joined(outputs)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


def joined(outputs: Sequence[RequestOutput]) -> RequestOutput:
    """Outputs of one request that follow each other, as one; the last of them says whether and how it ended."""
    timings = [output.timing for output in outputs if output.timing is not None]
    reports = [output.prefix for output in outputs if output.prefix is not None]
    return msgspec.structs.replace(
        outputs[-1],
        new_token_ids=[token_id for output in outputs for token_id in output.new_token_ids],
        logprobs=[entry for output in outputs for entry in output.logprobs],
        prompt_logprobs=[entry for output in outputs for entry in output.prompt_logprobs],
        timing=timings[-1] if timings else None,
        prefix=reports[-1] if reports else None,
    )
