"""The front end's side of forms: what a call asks for is compiled, and fixed to its requests, before they are sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from qanat.config.resolved import ResolvedConfig
from qanat.core.constraint import Thinking
from qanat.core.errors import DeadlineError, QanatError
from qanat.core.request import Request
from qanat.core.sampling_params import SamplingParams
from qanat.engine.constraints import ConstraintMaker, VocabularyPacker
from qanat.engine.request_stream import RequestStream
from qanat.engine.tokenizer import Tokenizer
from qanat.structured.compiler import CompileStats, GrammarCompiler


class FormDesk:
    """Compiles the forms of calls.

    Args:
        tokenizer: whose tokens the forms are about.
        config: the resolved configuration.

    Attributes:
        vocabulary: for whoever compiles.
        compiler: has the compile process.
        maker: makes constraints.
    """

    def __init__(self, tokenizer: Tokenizer, config: ResolvedConfig) -> None:
        self.vocabulary = VocabularyPacker(tokenizer, config)
        self.compiler = GrammarCompiler(config.structured, self.vocabulary.packed)
        self.maker = ConstraintMaker(tokenizer, config)

    async def constrain(self, stream: RequestStream, sampling: SamplingParams, thinking: Thinking) -> bool:
        """Fixes the form of a call to its requests. False if the call was ended meanwhile.

        Raises:
            StructuredOutputError, QueueFullError: see `GrammarCompiler.compile`.
            DeadlineError: the call's time was up before.
        """
        if sampling.structured_outputs is None:
            return True
        owner = next(iter(stream.requests.values())).owner
        compiling = asyncio.create_task(
            self.compiler.compile(sampling.structured_outputs, owner, stream.note_cost)
        )
        stream.preparation = compiling
        try:
            await asyncio.wait({compiling}, timeout=_time_left_s(stream.requests.values()))
        finally:
            stream.preparation = None
            if not compiling.done():
                compiling.cancel()
        if stream.is_broken_off:
            return False
        try:
            if not compiling.done():
                raise DeadlineError(
                    "The request's deadline passed before its form was compiled. Allow it more time."
                )
            constraint = self.maker.constraint(compiling.result(), thinking)
        except QanatError as error:
            error.has_cost = stream.has_cost
            raise
        for request in stream.requests.values():
            request.constraint = constraint
        return True

    def stats(self) -> CompileStats:
        """Counts of the compiler."""
        return self.compiler.stats()

    async def shutdown(self) -> None:
        """Ends the compile process. Safe to call twice."""
        await self.compiler.shutdown()


def _time_left_s(requests: Iterable[Request]) -> float | None:
    """Seconds up to the first deadline of any request; None if there is none."""
    deadlines = [
        deadline_s
        for one in requests
        for deadline_s in (one.deadline_s, one.queue_deadline_s, one.first_token_deadline_s)
        if deadline_s is not None
    ]
    return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
