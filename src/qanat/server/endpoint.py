"""The road that both generation endpoints take: read, prepare, then stream or fold, and one error or end for each."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from qanat.core.errors import QanatError, StructuredOutputError
from qanat.server.caller import Caller, caller_of
from qanat.server.errors import error_body
from qanat.server.events import ReplyStep
from qanat.server.generation import AssemblerFactory, Generation, reply_events
from qanat.server.http import (
    STREAM_END,
    ClientGoneError,
    read_json_body,
    run_until_disconnect,
    send_chunk,
    send_error,
    send_json,
    start_stream,
    stream_chunk,
    with_headers,
)
from qanat.server.pinning import pinned_rank
from qanat.server.responses import CompletionTokensDetails, PromptTokensDetails, Usage
from qanat.server.service import Service, reply_id_of
from qanat.server.timing import Stopwatch, Timing

log = logging.getLogger(__name__)

TOOLS_FIELD = "tools"
"""Blamed for a form that a function spoils, whatever else asks for one."""

REQUEST_ID_KEY = "qanat.request_id"
"""Where the ASGI scope holds the request's id."""


Chunk = TypeVar("Chunk", bound=msgspec.Struct)


class Reply(Protocol[Chunk]):
    """One answer in the making: chunks for a stream, or a fold over them."""

    def add(self, step: ReplyStep) -> list[Chunk]:
        """Takes the news of a choice; returns the chunks for them. There is one at least for the last step."""
        ...

    def end_chunks(self, usage: Usage) -> list[Chunk]:
        """Chunks of a stream after the last choice has ended."""
        ...

    def whole(self, chunks: Sequence[Chunk], usage: Usage) -> msgspec.Struct:
        """The body of an answer that is not streamed, from all chunks that `add` returned."""
        ...


@dataclass(frozen=True)
class Plan(Generic[Chunk]):
    """A request that passed every check.

    Attributes:
        generations: what the engine is to do.
        make_assembler: makes one per choice.
        reply: takes the events.
        is_stream: send events as they come.
        has_running_usage: every chunk of a stream carries the token counts so far.
        field_names: how the request spells fields that the engine's errors name.
        form_field: which of its fields asked for the form of the output.
    """

    generations: Sequence[Generation]
    make_assembler: AssemblerFactory
    reply: Reply[Chunk]
    is_stream: bool
    has_running_usage: bool = False
    field_names: Mapping[str, str] = field(default_factory=dict)
    form_field: str = ""

    def pinned(self, rank: int) -> Plan[Chunk]:
        """The same, for this replica."""
        generations = [dataclasses.replace(one, data_parallel_rank=rank) for one in self.generations]
        return dataclasses.replace(self, generations=generations)


class Planner(Protocol[Chunk]):
    """Makes a plan from a request body: the part in which the endpoints differ."""

    async def __call__(self, body: bytes, request_id: str, caller: Caller) -> Plan[Chunk]:
        """Checks the request and prepares its prompts.

        Raises:
            QanatError: the request is refused.
        """
        ...


class GenerationEndpoint(Generic[Chunk]):
    """A bare ASGI application for one path.

    Nothing is sent before the first event: whatever goes wrong until then is a proper HTTP error, for streams too.
    Afterwards an error is the last event of the stream, in place of [DONE].
    """

    def __init__(self, service: Service, plan: Planner[Chunk]) -> None:
        self._service = service
        self._plan = plan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        try:
            body = await read_json_body(scope, receive, self._service.max_body_bytes)
            rank = pinned_rank(scope)
            self._service.engine.replicas.check_rank(rank)
        except ClientGoneError:
            return
        except QanatError as error:
            await send_error(send, error)
            return
        work = self._answer(body, scope[REQUEST_ID_KEY], caller_of(scope), rank, send)
        await run_until_disconnect(work, receive)

    async def _answer(
        self, body: bytes, request_id: str, caller: Caller, rank: int | None, send: Send
    ) -> None:
        desk = self._service.desk
        output, watch = _Output(with_headers(send, lambda: desk.headers(caller))), Stopwatch()
        try:
            async with desk.lease(caller) as lease:
                await self._service.turnstile.enter()
                plan = await self._plan(body, request_id, caller)
                if rank is not None:
                    plan = plan.pinned(rank)
                await lease.start(plan.generations)
                watch.tap = lease.add
                engine_ids = [generation.request_id for generation in plan.generations]
                names = {request_id, *map(reply_id_of, engine_ids)}
                usage = UsageTally(plan.generations)
                with (
                    self._service.running.listed(names, engine_ids),
                    self._service.recent.noted(request_id, lambda: (usage.timing(watch), usage.total())),
                ):
                    await self._carry_out(plan, output, watch, usage)
        except QanatError as error:
            desk.refuse(caller, error)
            await output.fail(error)
        except Exception:
            log.exception("request %s failed", request_id)
            await output.fail(QanatError("Something went wrong in the server; its log has the details."))

    async def _carry_out(
        self, plan: Plan[Chunk], output: _Output, watch: Stopwatch, usage: UsageTally
    ) -> None:
        try:
            if plan.is_stream:
                await self._stream(plan, output, watch, usage)
            else:
                await self._whole(plan, output, watch, usage)
        except QanatError as error:
            if isinstance(error, StructuredOutputError) and error.param != TOOLS_FIELD:
                error.param = plan.form_field or error.param
            error.param = plan.field_names.get(error.param or "", error.param)
            raise

    def _steps(self, plan: Plan[Chunk], watch: Stopwatch) -> AsyncGenerator[ReplyStep, None]:
        service = self._service
        return reply_events(service.engine, plan.generations, plan.make_assembler, watch, service.turnstile)

    async def _whole(self, plan: Plan[Chunk], output: _Output, watch: Stopwatch, usage: UsageTally) -> None:
        chunks: list[Chunk] = []
        async with contextlib.aclosing(self._steps(plan, watch)) as steps:
            async for step in steps:
                usage.add(step)
                chunks += plan.reply.add(step)
        body = plan.reply.whole(chunks, usage.total())
        await output.whole(msgspec.structs.replace(body, timing=usage.timing(watch)))

    async def _stream(self, plan: Plan[Chunk], output: _Output, watch: Stopwatch, usage: UsageTally) -> None:
        async with contextlib.aclosing(self._steps(plan, watch)) as steps:
            async for step in steps:
                usage.add(step)
                chunks = plan.reply.add(step)
                if plan.has_running_usage:
                    total = usage.total()
                    chunks = [msgspec.structs.replace(chunk, usage=total) for chunk in chunks]
                if usage.is_complete:
                    chunks[-1] = msgspec.structs.replace(chunks[-1], timing=usage.timing(watch))
                await output.write(chunks)
        await output.end(plan.reply.end_chunks(usage.total()))


class JsonEndpoint:
    """A bare ASGI application that answers one JSON body with another.

    Args:
        service: for the limit on bodies.
        answer: makes the answer for a body and its sender; its errors become error answers.
    """

    def __init__(
        self, service: Service, answer: Callable[[bytes, Caller], Awaitable[msgspec.Struct]]
    ) -> None:
        self._max_body_bytes = service.max_body_bytes
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        try:
            body = await read_json_body(scope, receive, self._max_body_bytes)
        except ClientGoneError:
            return
        await send_json(send, await self._answer(body, caller_of(scope)))


class _Output:
    """A response that is not begun before there is something to say."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_begun = False

    async def whole(self, body: msgspec.Struct) -> None:
        """Sends an answer that is not streamed."""
        await send_json(self._send, body)

    async def write(self, chunks: Sequence[msgspec.Struct]) -> None:
        """Sends events of the stream."""
        if not self._is_begun:
            self._is_begun = True
            await start_stream(self._send)
        if chunks:
            await send_chunk(self._send, b"".join(stream_chunk(chunk) for chunk in chunks))

    async def end(self, chunks: Sequence[msgspec.Struct]) -> None:
        """Sends the last events and the mark of a complete stream."""
        tail = b"".join(stream_chunk(chunk) for chunk in chunks)
        await send_chunk(self._send, tail + STREAM_END, is_last=True)

    async def fail(self, error: QanatError) -> None:
        """Tells the client of an error, in whichever form is still possible."""
        if self._is_begun:
            await send_chunk(self._send, stream_chunk(error_body(error)), is_last=True)
        else:
            await send_error(self._send, error)


class UsageTally:
    """Adds up token counts; a prompt counts once, however many choices it has."""

    def __init__(self, generations: Sequence[Generation]) -> None:
        self._num_prompt_tokens = sum(len(generation.prompt_token_ids) for generation in generations)
        self._first_indices = {generation.indices[0] for generation in generations}
        self._num_open = sum(len(generation.indices) for generation in generations)
        self._num_cached_tokens: dict[int, int] = {}  # by the index of a prompt's first choice
        self._num_output_tokens = 0
        self._num_reasoning_tokens: dict[int, int] = {}  # by choice
        self._num_drafted: dict[int, int] = {}  # by choice
        self._num_accepted: dict[int, int] = {}  # by choice

    def add(self, step: ReplyStep) -> None:
        """Counts what a choice has by now."""
        self._num_open -= step.is_last
        self._num_output_tokens += len(step.token_ids)
        self._num_reasoning_tokens[step.index] = step.num_reasoning_tokens
        if step.num_drafted:
            self._num_drafted[step.index] = step.num_drafted
            self._num_accepted[step.index] = step.num_accepted
        if step.index in self._first_indices:
            self._num_cached_tokens[step.index] = step.num_cached_tokens

    @property
    def is_complete(self) -> bool:
        """True once every choice has ended."""
        return self._num_open == 0

    def timing(self, watch: Stopwatch) -> Timing:
        """The times so far."""
        return watch.read(sum(self._num_cached_tokens.values()))

    def total(self) -> Usage:
        """The counts so far."""
        num_accepted = sum(self._num_accepted.values())
        return Usage(
            prompt_tokens=self._num_prompt_tokens,
            completion_tokens=self._num_output_tokens,
            total_tokens=self._num_prompt_tokens + self._num_output_tokens,
            prompt_tokens_details=PromptTokensDetails(sum(self._num_cached_tokens.values())),
            completion_tokens_details=CompletionTokensDetails(
                sum(self._num_reasoning_tokens.values()),
                num_accepted,
                sum(self._num_drafted.values()) - num_accepted,
            ),
        )


def now_s() -> int:
    """Seconds since the epoch, as answers date themselves."""
    return int(time.time())
