"""The front end's side of forms: what a call asks for is compiled, and fixed to its requests, before they are sent."""

from __future__ import annotations

import asyncio
import time

from qanat.config.resolved import ResolvedConfig
from qanat.core.constraint import Thinking
from qanat.core.errors import QanatError
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
        self.maker = ConstraintMaker(tokenizer, config, self.vocabulary)

    async def constrain(self, stream: RequestStream, sampling: SamplingParams, thinking: Thinking) -> bool:
        """Fixes the form of a call to its requests. False if the call was ended meanwhile.

        Raises:
            StructuredOutputError, QueueFullError: see `GrammarCompiler.compile`.
            DeadlineError: the call's time was up before.
        """
        if sampling.structured_outputs is None:
            return True
        first = next(iter(stream.requests.values()))
        deadline = min(first.deadlines, key=lambda one: one.end_s, default=None)
        compiling = asyncio.create_task(
            self.compiler.compile(sampling.structured_outputs, first.owner, stream.note_cost)
        )
        stream.preparation = compiling
        try:
            left_s = None if deadline is None else max(0.0, deadline.end_s - time.monotonic())
            await asyncio.wait({compiling}, timeout=left_s)
        finally:
            stream.preparation = None
            if not compiling.done():
                compiling.cancel()
        if stream.is_broken_off:
            return False
        try:
            if deadline is not None and not compiling.done():
                raise deadline.error("its form was compiled")
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
