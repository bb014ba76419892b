"""Forms to grammars, for the front end: every form is compiled once, elsewhere, within limits."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from qanat.config.structured import StructuredSettings
from qanat.core.errors import QanatError, QueueFullError, StructuredOutputError
from qanat.core.fair_places import FairPlaces
from qanat.core.structured_outputs import FORM_FIELDS, StructuredOutputsParams
from qanat.structured.compile_child import CompileChild, CompilerDiedError
from qanat.structured.compile_messages import Compile, Compiled, Refused, Setup

logger = logging.getLogger(__name__)

MAX_JOBS = 4
"""Forms that are compiled at a time; the rest waits, but no longer than two forms may take."""
MAX_JOBS_PER_OWNER = 3
"""Of these, for one owner: whatever it sends, somebody else's form need not wait for it."""
MAX_WAITING_BYTES_PER_OWNER = 16 * 2**20
"""Size of the forms that one owner may have waiting."""
WAITING_BYTES = 4096
"""What a form that waits counts for beside its own size."""
MAX_CACHED_BYTES = 32 * 2**20
"""Size of all grammars and refusals that are remembered."""
ENTRY_BYTES = 200
"""What remembering anything takes."""


class CompileStats(msgspec.Struct, frozen=True):
    """Counts since the start.

    Attributes:
        num_compiles: forms that were given to the compile process.
        num_cache_hits: requests whose form was known, or was being compiled for another one.
        num_refusals: forms that cannot be compiled, whether just tried or remembered.
        num_overruns: of the forms tried, those that met a limit on time or memory.
        num_restarts: compile processes that died and were replaced.
    """

    num_compiles: int = 0
    num_cache_hits: int = 0
    num_refusals: int = 0
    num_overruns: int = 0
    num_restarts: int = 0


Answer = Compiled | Refused


class GrammarCompiler:
    """Compiles forms in a child process that is started with the first of them. Belongs to one event loop.

    Args:
        settings: backend and limits.
        packed_vocabulary: called for each start of the process.
    """

    def __init__(self, settings: StructuredSettings, packed_vocabulary: Callable[[], bytes]) -> None:
        self._settings = settings
        self._packed_vocabulary = packed_vocabulary
        self._cache: OrderedDict[bytes, Answer] = OrderedDict()
        self._num_cached_bytes = 0
        self._running: dict[tuple[str, bytes], _Shared] = {}
        self._places = FairPlaces(
            MAX_JOBS,
            max_per_owner=MAX_JOBS_PER_OWNER,
            max_waiting_size=MAX_WAITING_BYTES_PER_OWNER,
            what="forms",
        )
        self._child: CompileChild | None = None
        self._child_lock = asyncio.Lock()
        self._stats = CompileStats()

    async def compile(
        self, params: StructuredOutputsParams, owner: str = "", on_begin: Callable[[], None] | None = None
    ) -> str:
        """Grammar of a form. Cancelling stops the compilation, unless the owner waits for it elsewhere.

        Args:
            params: the form.
            owner: whose it is; owners take turns, and share what is compiled, but not what is being compiled.
            on_begin: called if it is compiled for this call, when that begins.

        Raises:
            StructuredOutputError: the form is refused, or takes too much.
            QueueFullError: too many forms are being compiled.
        """
        params = self._with_defaults(params)
        form = self._form(params, owner)
        answer = self._known(form)
        if answer is not None:
            self._count("num_cache_hits")
        else:
            answer = await self._shared(form, on_begin)
        if isinstance(answer, Compiled):
            return answer.grammar
        self._count("num_refusals")
        raise StructuredOutputError(answer.message, param=answer.param or "structured_outputs")

    def stats(self) -> CompileStats:
        """Counts since the start."""
        return self._stats

    @property
    def child_pid(self) -> int | None:
        """The compile process, if there is one."""
        return self._child.pid if self._child is not None and self._child.is_alive else None

    async def shutdown(self) -> None:
        """Ends the compile process. Safe to call twice."""
        for shared in list(self._running.values()):
            shared.task.cancel()
        if self._child is not None:
            await self._child.stop()

    def _with_defaults(self, params: StructuredOutputsParams) -> StructuredOutputsParams:
        return msgspec.structs.replace(
            params,
            disable_any_whitespace=params.disable_any_whitespace or self._settings.is_compact,
            disable_additional_properties=params.disable_additional_properties or self._settings.is_closed,
        )

    def _form(self, params: StructuredOutputsParams, owner: str) -> _Form:
        """The form with its name. The order of a schema's properties is part of it."""
        field = next(name for name in FORM_FIELDS if getattr(params, name) not in (None, False))
        try:
            encoded = msgspec.msgpack.encode(params)
        except (RecursionError, TypeError, ValueError, OverflowError) as error:
            raise StructuredOutputError(f"{field} cannot be read: {error}", param=field) from None
        if len(encoded) > self._settings.max_form_bytes:
            raise StructuredOutputError(
                f"{field} is {len(encoded):,} bytes long; at most {self._settings.max_form_bytes:,} are compiled "
                "(--structured-outputs-config.max_form_bytes).",
                param=field,
            )
        return _Form(params, owner, hashlib.sha256(encoded).digest(), len(encoded))

    def _known(self, form: _Form) -> Answer | None:
        answer = self._cache.get(form.digest)
        if answer is not None:
            self._cache.move_to_end(form.digest)
        return answer

    async def _shared(self, form: _Form, on_begin: Callable[[], None] | None) -> Answer:
        """The answer of a compilation that all calls of the owner which want it wait for."""
        key = (form.owner, form.digest)
        shared = self._running.get(key)
        if shared is None:
            shared = self._running[key] = _Shared(asyncio.create_task(self._compile(form, on_begin)))
        else:
            self._count("num_cache_hits")
        shared.num_waiting += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.num_waiting -= 1
            if shared.num_waiting == 0:
                shared.task.cancel()
                if self._running.get(key) is shared:
                    del self._running[key]

    async def _compile(self, form: _Form, on_begin: Callable[[], None] | None) -> Answer:
        try:
            async with asyncio.timeout(2 * self._settings.compile_timeout_s):
                await self._places.enter(form.owner, WAITING_BYTES + form.size_bytes)
        except TimeoutError:
            raise QueueFullError(
                "Too many forms are being compiled. Try again later.",
                retry_after_s=max(1, round(self._settings.compile_timeout_s)),
            ) from None
        try:
            answer = self._known(form)  # another owner's was compiled meanwhile
            if answer is not None:
                return answer
            if on_begin is not None:
                on_begin()
            answer = await self._answer(form.params)
        finally:
            self._places.leave(form.owner)
        is_overrun = isinstance(answer, Refused) and answer.is_overrun
        if is_overrun:
            self._count("num_overruns")
            logger.warning("A form was refused: %s", answer)
        else:
            self._remember(form.digest, answer)
        return answer

    async def _answer(self, params: StructuredOutputsParams) -> Answer:
        """Asks the process; one that dies meanwhile, for whatever reason, is replaced once."""
        self._count("num_compiles")
        try:
            return await (await self._live_child()).compile(Compile(0, params))
        except CompilerDiedError:
            pass
        try:
            return await (await self._live_child()).compile(Compile(0, params))
        except CompilerDiedError as error:
            logger.error("The compile process died twice over a form.")
            raise QanatError(
                "The form could not be compiled: the compile process died. Try again."
            ) from error

    async def _live_child(self) -> CompileChild:
        async with self._child_lock:
            if self._child is None or not self._child.is_alive:
                if self._child is not None:
                    self._count("num_restarts")
                    await self._child.stop()
                setup = Setup(
                    self._settings.backend,
                    self._packed_vocabulary(),
                    self._settings.compile_timeout_s,
                    self._settings.max_compile_memory_bytes,
                    self._settings.max_grammar_bytes,
                )
                self._child = await CompileChild.start(setup)
            return self._child

    def _remember(self, key: bytes, answer: Answer) -> None:
        if key in self._cache:  # two owners had it compiled at the same time
            return
        self._cache[key] = answer
        self._num_cached_bytes += _size_bytes(answer)
        while self._num_cached_bytes > MAX_CACHED_BYTES:
            _, oldest = self._cache.popitem(last=False)
            self._num_cached_bytes -= _size_bytes(oldest)

    def _count(self, name: str) -> None:
        self._stats = msgspec.structs.replace(self._stats, **{name: getattr(self._stats, name) + 1})


@dataclass(frozen=True)
class _Form:
    """A form, whose it is, and what it is remembered under."""

    params: StructuredOutputsParams
    owner: str
    digest: bytes
    size_bytes: int


class _Shared:
    """A compilation and how many wait for it."""

    def __init__(self, task: asyncio.Task[Answer]) -> None:
        self.task = task
        self.num_waiting = 0


def _size_bytes(answer: Answer) -> int:
    return ENTRY_BYTES + len(answer.grammar if isinstance(answer, Compiled) else answer.message)
