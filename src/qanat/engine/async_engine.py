"""The engine as the server and asynchronous programs see it. Torch stays in the core's process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Sequence

import msgspec

from qanat.config.engine_config import EngineConfig
from qanat.config.prepare import prepare
from qanat.config.resolved import ResolvedConfig
from qanat.core.constraint import Thinking
from qanat.core.decision import Decision
from qanat.core.errors import (
    ContextLengthError,
    EngineDeadError,
    InvalidRequestError,
    QanatError,
    QueueFullError,
)
from qanat.core.events import GenerationEvent
from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.engine.admission import Admission
from qanat.engine.continuation import PriorOutput
from qanat.engine.messages import AbortRequest, AddRequest, Ready, StepDone
from qanat.engine.metrics import EngineMetrics, EngineStats
from qanat.engine.process_client import ProcessClient
from qanat.engine.request_stream import RequestStream
from qanat.engine.tokenizer import Tokenizer, load_tokenizer
from qanat.scheduler.stats import SchedulerStats

logger = logging.getLogger(__name__)

REFUSALS: tuple[type[QanatError], ...] = (QueueFullError, ContextLengthError, InvalidRequestError)
"""Errors with which the core refuses a request: raised to the caller, as nothing has been generated."""

MAX_RECEIVING_S = 0.005
"""How long steps that have piled up are taken in a row before the streams get their turn."""


class EngineHealth(msgspec.Struct, frozen=True):
    """Whether work makes progress.

    Attributes:
        is_alive: the core's process lives.
        num_pending: requests that wait or run.
        last_step_age_s: seconds since the last step ended, or since work arrived if that was later.
        is_healthy: alive, and no work has waited longer than the step limit without a step.
    """

    is_alive: bool
    num_pending: int
    last_step_age_s: float
    is_healthy: bool


class AsyncEngine:
    """Generates tokens for many callers at once. Use `await AsyncEngine.create(EngineConfig(model=...))`.

    Attributes:
        config: the resolved configuration.
        tokenizer: the checkpoint's tokenizer.
        decisions: every setting that was derived or overridden, with the reason.
        memory_plan: what the core allocated.
        op_table: kernel providers, one line per op.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        client: ProcessClient,
        ready: Ready,
        decisions: Sequence[Decision] = (),
    ) -> None:
        self.config = ready.config
        self.tokenizer = tokenizer
        self.decisions = [*decisions, *ready.decisions]
        self.memory_plan = ready.memory_plan
        self.op_table = ready.op_table
        self._client = client
        self._admission = Admission(self.config, tokenizer, self.memory_plan.max_cached_tokens)
        self._metrics = EngineMetrics()
        self._streams: dict[str, RequestStream] = {}  # by the ids of the core
        self._calls: dict[str, RequestStream] = {}  # by the ids of the callers
        self._pending: set[str] = set()  # what the core has not reported as ended
        self._num_calls = 0
        self._death: QanatError | None = None
        self._last_progress_s = time.monotonic()
        self._scheduler_stats: SchedulerStats | None = None
        self._receiver = asyncio.create_task(self._receive())

    @classmethod
    async def start(cls, config: ResolvedConfig, decisions: Sequence[Decision] = ()) -> AsyncEngine:
        """Starts the core's process and waits until the model is loaded.

        Raises:
            CheckpointError: the model folder cannot be served.
            CapacityError: weights or cache do not fit.
            EngineDeadError: the core did not come up.
        """
        tokenizer, config = load_tokenizer(config)
        client = ProcessClient()
        try:
            ready = await client.start(config)
        except BaseException:
            await client.stop()
            raise
        return cls(tokenizer, client, ready, decisions)

    @classmethod
    async def create(cls, wishes: EngineConfig) -> AsyncEngine:
        """Resolves the wishes as the command line does, then starts.

        Raises:
            ConfigError: a wish that cannot be fulfilled.
            CheckpointError, CapacityError, EngineDeadError: see `start`.
        """
        prepared = await asyncio.to_thread(prepare, wishes)
        return await cls.start(prepared.config, prepared.decisions)

    async def generate(
        self,
        prompt_token_ids: list[int],
        sampling: SamplingParams,
        *,
        request_id: str | None = None,
        priority: int = 0,
        timeout_s: float | None = None,
        cache_salt: str = "",
        owner: str = "",
        thinking: Thinking = Thinking.NONE,
        output_token_ids: PriorOutput = (),
    ) -> AsyncIterator[GenerationEvent]:
        """Events of all n choices, interleaved; ends when each has had its finish reason.

        Closing the iterator or cancelling its task aborts what is still running.

        Args:
            prompt_token_ids: the prompt.
            sampling: how tokens are chosen.
            request_id: unique among live calls; None makes one up.
            priority: lower runs first under the priority policy.
            timeout_s: until the request ends with an error.
            cache_salt: keeps prefixes of different owners apart.
            owner: whose request it is.
            thinking: whether the output begins with reasoning, which a form leaves free.
            output_token_ids: output of choices that are continued, one entry per choice, None for those that have
                ended; events then tell what comes after, and counts and max_tokens include what was there.

        Raises:
            InvalidRequestError, ContextLengthError, QueueFullError: before the first event.
            EngineDeadError: the core is dead or dies.
        """
        request_id = request_id or uuid.uuid4().hex
        if request_id in self._calls:
            raise InvalidRequestError(f"A request with id {request_id} is still running.", param="request_id")
        self._num_calls += 1
        requests = self._admission.requests(
            prompt_token_ids,
            sampling,
            # A caller may use an id again while the core's last words on its former use are still on their way.
            request_id=f"{request_id}.{self._num_calls}",
            priority=priority,
            timeout_s=timeout_s,
            cache_salt=cache_salt,
            owner=owner,
            output_token_ids=output_token_ids,
        )
        stream = RequestStream(request_id, self.tokenizer, requests)
        try:
            await self._submit(stream)
            while stream.num_open:
                yield await self._next_event(stream)
        finally:
            await self._close(stream)

    async def abort(self, request_id: str) -> bool:
        """Ends a request, all choices of it, at the core's next step. False if it is not known."""
        stream = self._calls.get(request_id)
        if stream is None:
            return False
        for choice_id in stream.processors:
            await self._abort(choice_id)
        return True

    async def end_choice(self, request_id: str, last_event: GenerationEvent) -> None:
        """Ends one choice as complete: its caller found what it was to stop at in the tokens so far.

        It counts as finished by "stop", and `generate` yields nothing more of it.

        Args:
            request_id: as given to `generate`.
            last_event: the choice's event that ended it.
        """
        stream = self._calls.get(request_id)
        choice_id = stream.choice_id(last_event.index) if stream else None
        if stream is None or choice_id is None:
            return
        del stream.processors[choice_id]
        event = msgspec.structs.replace(last_event, finish_reason=FinishReason.STOP)
        self._metrics.on_finished(stream.requests[choice_id], event)
        await self._abort(choice_id)

    async def end_all(self, error: QanatError) -> None:
        """Ends all requests with an error; new ones are still taken."""
        for stream in list(self._calls.values()):
            stream.fail(error)
            for choice_id in stream.processors:
                await self._abort(choice_id)

    @property
    def core_pid(self) -> int | None:
        """Process id of the core."""
        return self._client.pid

    def health(self) -> EngineHealth:
        """See `EngineHealth`; costs nothing."""
        is_alive = self._death is None
        age_s = time.monotonic() - self._last_progress_s if self._pending else 0.0
        is_healthy = is_alive and age_s <= self.config.step_timeout_s
        return EngineHealth(is_alive, len(self._pending), age_s, is_healthy)

    def stats(self) -> EngineStats:
        """Counters, gauges and histograms since the start."""
        return self._metrics.snapshot(self._scheduler_stats)

    async def shutdown(self) -> None:
        """Ends all requests and the core's process. Safe to call twice."""
        self._fail_all(EngineDeadError("The engine is shutting down."))
        self._receiver.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._receiver
        await self._client.stop()

    async def _submit(self, stream: RequestStream) -> None:
        if self._death is not None:
            raise self._death
        self._calls[stream.request_id] = stream
        if not self._pending:
            self._last_progress_s = time.monotonic()
        for choice_id, request in stream.requests.items():
            self._streams[choice_id] = stream
            self._pending.add(choice_id)
            self._metrics.on_admitted(request)
            await self._client.send(AddRequest(request))

    async def _next_event(self, stream: RequestStream) -> GenerationEvent:
        while True:
            output = await stream.get()
            processor = stream.processors.get(output.request_id)
            if processor is None:  # the choice ended at a stop string; this is what the core did meanwhile
                continue
            self._raise_refusal(output, stream)
            step = processor.process(output)
            if step.must_abort:
                await self._abort(output.request_id)
            if step.event.finish_reason is not None:
                del stream.processors[output.request_id]
                self._metrics.on_finished(stream.requests[output.request_id], step.event)
            return step.event

    async def _close(self, stream: RequestStream) -> None:
        if self._calls.get(stream.request_id) is stream:
            del self._calls[stream.request_id]
        for choice_id, request in stream.requests.items():
            if self._streams.pop(choice_id, None) is None:
                continue
            if choice_id in stream.processors and self._death is None:
                self._metrics.on_aborted(request)
                await self._abort(choice_id)
            self._pending.discard(choice_id)

    async def _abort(self, choice_id: str) -> None:
        with contextlib.suppress(EngineDeadError):  # then there is nothing to abort
            await self._client.send(AbortRequest(choice_id))

    def _raise_refusal(self, output: RequestOutput, stream: RequestStream) -> None:
        if output.finish_reason is not FinishReason.ERROR:
            return
        for kind in REFUSALS:
            if output.error_code == kind.code:
                del stream.processors[output.request_id]
                self._metrics.on_refused(stream.requests[output.request_id])
                raise kind(output.error_message)

    async def _receive(self) -> None:
        """Hands the core's news to the streams, until it dies."""
        turn_s = time.monotonic()
        try:
            while True:
                message = await self._client.receive()
                assert isinstance(message, StepDone)
                self._last_progress_s = time.monotonic()
                self._scheduler_stats = message.stats
                self._metrics.on_step(message.outputs, self._last_progress_s)
                for output in message.outputs:
                    await self._hand_over(output)
                if time.monotonic() - turn_s > MAX_RECEIVING_S:
                    await asyncio.sleep(0)
                    turn_s = time.monotonic()
        except EngineDeadError as error:
            self._fail_all(error)
        except Exception as error:  # whatever it is, nobody may wait for ever
            logger.exception("The front end cannot go on.")
            self._fail_all(EngineDeadError(f"The front end of the engine failed: {error}"))

    async def _hand_over(self, output: RequestOutput) -> None:
        if output.finish_reason is not None:
            self._pending.discard(output.request_id)
        stream = self._streams.get(output.request_id)
        if stream is None or stream.put(output):
            return
        for choice_id in stream.processors:
            await self._abort(choice_id)

    def _fail_all(self, error: QanatError) -> None:
        self._death = self._death or error
        for stream in self._calls.values():
            stream.fail(self._death)
