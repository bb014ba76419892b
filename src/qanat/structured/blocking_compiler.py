"""Compiling forms for a program without an event loop: one of its own, in a thread, made with the first form."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from qanat.config.structured import StructuredSettings
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.compiler import GrammarCompiler


class BlockingCompiler:
    """`GrammarCompiler` for one thread that waits.

    Args:
        settings: backend and limits.
        packed_vocabulary: called for each start of the compile process.
    """

    def __init__(self, settings: StructuredSettings, packed_vocabulary: Callable[[], bytes]) -> None:
        self._settings = settings
        self._packed_vocabulary = packed_vocabulary
        self._loop: asyncio.AbstractEventLoop | None = None
        self._compiler: GrammarCompiler | None = None

    def compile(self, params: StructuredOutputsParams) -> str:
        """Grammar of a form.

        Raises:
            StructuredOutputError: the form is refused, or takes too much.
        """
        if self._loop is None or self._compiler is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="form-compiler", daemon=True).start()
            self._compiler = GrammarCompiler(self._settings, self._packed_vocabulary)
        answer = asyncio.run_coroutine_threadsafe(self._compiler.compile(params), self._loop)
        try:
            return answer.result()
        finally:
            answer.cancel()  # of use after an interrupt only

    def shutdown(self) -> None:
        """Ends the compile process and the thread. Safe to call twice."""
        if self._loop is None or self._compiler is None:
            return
        asyncio.run_coroutine_threadsafe(self._compiler.shutdown(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop = self._compiler = None
