"""The engine as the server and asynchronous programs see it. Torch stays in the core's process."""

from __future__ import annotations

import asyncio
import contextlib
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
    StructuredOutputError,
)
from qanat.core.events import GenerationEvent
from qanat.core.outputs import RequestOutput, RequestTiming
from qanat.core.profile import ProfileReport
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.core.timeouts import Timeouts
from qanat.engine.admission import Admission
from qanat.engine.continuation import PriorOutput
from qanat.engine.core_client import ClientFactory, CoreClient
from qanat.engine.core_line import CoreLine, EngineHealth, Listener
from qanat.engine.form_desk import FormDesk
from qanat.engine.messages import AbortRequest, AddRequests, Ready, StepDone, UseVocabulary
from qanat.engine.metrics import EngineMetrics, EngineStats
from qanat.engine.process_client import ProcessClient
from qanat.engine.request_stream import RequestStream
from qanat.engine.restarts import RestartBudget
from qanat.engine.tokenizer import Tokenizer, load_tokenizer
from qanat.scheduler.stats import SchedulerStats

REFUSALS: tuple[type[QanatError], ...] = (
    QueueFullError,
    ContextLengthError,
    InvalidRequestError,
    StructuredOutputError,
)
"""Errors with which the core refuses a request: raised to the caller as long as nothing has been generated."""


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
        client: CoreClient,
        ready: Ready,
        decisions: Sequence[Decision] = (),
        restarts: RestartBudget | None = None,
        make_client: ClientFactory = ProcessClient,
    ) -> None:
        self.config = ready.config
        self.tokenizer = tokenizer
        self.decisions = [*decisions, *ready.decisions]
        self.memory_plan = ready.memory_plan
        self.op_table = ready.op_table
        self._admission = Admission(self.config, tokenizer, self.memory_plan.max_cached_tokens)
        self._forms = FormDesk(tokenizer, self.config)
        self._is_vocabulary_sent = False
        self._metrics = EngineMetrics()
        self._streams: dict[str, RequestStream] = {}  # by the ids of the core
        self._calls: dict[str, RequestStream] = {}  # by the ids of the callers
        self._pending: set[str] = set()  # what the core has not reported as ended
        self._num_calls = 0
        self._refusal: QanatError | None = None
        self._scheduler_stats: SchedulerStats | None = None
        listener = Listener(self._on_step, self._on_death, self._on_replaced)
        self._core = CoreLine(
            client, self.config, restarts or RestartBudget(), listener, make_client=make_client
        )

    @classmethod
    async def start(
        cls,
        config: ResolvedConfig,
        decisions: Sequence[Decision] = (),
        restarts: RestartBudget | None = None,
        make_client: ClientFactory = ProcessClient,
    ) -> AsyncEngine:
        """Starts the core's process and waits until the model is loaded.

        Args:
            config: every setting.
            decisions: on settings, to be kept with those of the start.
            restarts: how often a core that dies is replaced; None never does.
            make_client: makes the client to each core.

        Raises:
            CheckpointError: the model folder cannot be served.
            CapacityError: weights or cache do not fit.
            EngineDeadError: the core did not come up.
        """
        tokenizer, config = load_tokenizer(config)
        client = make_client()
        try:
            ready = await client.start(config)
        except BaseException:
            await client.stop()
            raise
        engine = cls(tokenizer, client, ready, decisions, restarts, make_client)
        await engine._send_vocabulary()
        return engine

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
        timeout_s: float | Timeouts | None = None,
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
            timeout_s: until the request ends with an error; a number bounds the whole.
            cache_salt: keeps prefixes of different owners apart.
            owner: whose request it is.
            thinking: whether the output begins with reasoning, which a form leaves free.
            output_token_ids: output of choices that are continued, one entry per choice, None for those that have
                ended; events then tell what comes after, and counts and max_tokens include what was there.

        Raises:
            InvalidRequestError, ContextLengthError, QueueFullError: before the first event.
            StructuredOutputError: the form cannot be compiled, or a choice not follow it, before the first token of
                any choice; afterwards an event of that choice says so, as of any error that is its own.
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
        self._calls[request_id] = stream
        try:
            self._raise_obstacle()
            if await self._forms.constrain(stream, sampling, thinking):
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
        if stream.end_preparation():
            for choice_id in stream.processors:
                stream.put(RequestOutput(request_id=choice_id, finish_reason=FinishReason.ABORT))
            return True
        for choice_id in stream.processors:
            await self._abort(choice_id)
        return True

    async def end_choice(self, request_id: str, last_event: GenerationEvent) -> RequestTiming | None:
        """Ends one choice as complete: its caller found what it was to stop at in the tokens so far.

        It counts as finished by "stop", and `generate` yields nothing more of it.

        Args:
            request_id: as given to `generate`.
            last_event: the choice's event that ended it.

        Returns:
            Its times; None if it is not running.
        """
        stream = self._calls.get(request_id)
        choice_id = stream.choice_id(last_event.index) if stream else None
        if stream is None or choice_id is None:
            return None
        timing = stream.processors.pop(choice_id).end_timing()
        event = msgspec.structs.replace(last_event, finish_reason=FinishReason.STOP, timing=timing)
        self._metrics.on_finished(stream.requests[choice_id], event)
        await self._abort(choice_id)
        return timing

    async def end_all(self, error: QanatError) -> None:
        """Ends all requests with an error; new ones are still taken."""
        for stream in list(self._calls.values()):
            stream.fail(error)
            stream.end_preparation()
            for choice_id in stream.processors:
                await self._abort(choice_id)

    def refuse_new(self, error: QanatError) -> None:
        """From now on `generate` raises this; what runs goes on."""
        self._refusal = error

    @property
    def num_calls(self) -> int:
        """Calls of `generate` that have not ended."""
        return len(self._calls)

    @property
    def num_restarts(self) -> int:
        """Cores that were started after one had died."""
        return self._core.num_restarts

    async def start_profile(self) -> None:
        """Records the core's steps from now on, as --profiler-config says.

        Raises:
            ProfilerStateError: a profile is recorded or written already, or profiling is switched off.
            ProfileWriteError, EngineDeadError: the folder cannot be written to; the core is dead or dies.
        """
        await self._core.start_profile()

    async def stop_profile(self) -> ProfileReport:
        """Ends the profile and waits for its files; of one that ended by itself, what became of it.

        Raises:
            ProfilerStateError: there is no profile.
            ProfileWriteError, EngineDeadError: its files will not come.
        """
        return await self._core.stop_profile()

    @property
    def core_pid(self) -> int | None:
        """Process id of the core."""
        return self._core.pid

    def health(self) -> EngineHealth:
        """See `EngineHealth`; costs nothing."""
        return self._core.health(len(self._pending))

    def stats(self) -> EngineStats:
        """Counters, gauges and histograms since the start."""
        return self._metrics.snapshot(self._scheduler_stats, self._forms.stats())

    async def shutdown(self) -> None:
        """Ends all requests and the core's process. Safe to call twice."""
        self._core.fail(EngineDeadError("The engine is shutting down."))
        await self._core.close()
        await self._forms.shutdown()

    async def _send_vocabulary(self) -> None:
        """Once in the life of each core, before its first request."""
        if not self._is_vocabulary_sent:
            self._is_vocabulary_sent = True
            with contextlib.suppress(EngineDeadError):  # the next core gets it too
                await self._core.send(UseVocabulary(self._forms.vocabulary.packed()))

    def _raise_obstacle(self) -> None:
        obstacle = self._core.death or self._refusal
        if obstacle is not None:
            raise obstacle.with_traceback(None)  # else each raise would lengthen it

    async def _submit(self, stream: RequestStream) -> None:
        self._raise_obstacle()
        await self._send_vocabulary()
        for choice_id, request in stream.requests.items():
            self._streams[choice_id] = stream
            self._pending.add(choice_id)
            self._metrics.on_admitted(request)
        await self._core.send(AddRequests.of(list(stream.requests.values())))

    async def _next_event(self, stream: RequestStream) -> GenerationEvent:
        while True:
            output = await stream.get()
            processor = stream.processors.get(output.request_id)
            if processor is None:  # the choice ended at a stop string; this is what the core did meanwhile
                continue
            self._raise_refusal(output, stream)
            stream.has_begun |= bool(output.new_token_ids)
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
            if choice_id in stream.processors and self._core.death is None:
                self._metrics.on_aborted(request)
                await self._abort(choice_id)
            self._pending.discard(choice_id)

    async def _abort(self, choice_id: str) -> None:
        with contextlib.suppress(EngineDeadError):  # then there is nothing to abort
            await self._core.send(AbortRequest(choice_id))

    def _raise_refusal(self, output: RequestOutput, stream: RequestStream) -> None:
        if output.finish_reason is not FinishReason.ERROR or stream.has_begun:
            return
        for kind in REFUSALS:
            if output.error_code == kind.code:
                del stream.processors[output.request_id]
                self._metrics.on_refused(stream.requests[output.request_id])
                error = kind(
                    output.error_message,
                    param=output.error_param or None,
                    retry_after_s=output.retry_after_s,
                )
                error.has_cost = stream.has_cost
                raise error

    async def _on_step(self, step: StepDone) -> None:
        self._scheduler_stats = step.stats
        self._metrics.on_step(step.outputs, time.monotonic())
        for output in step.outputs:
            await self._hand_over(output)

    def _on_death(self, error: QanatError) -> None:
        for stream in self._calls.values():
            stream.fail(error)
            stream.end_preparation()
        self._pending.clear()
        self._scheduler_stats = None

    def _on_replaced(self, ready: Ready) -> None:
        self.config, self.memory_plan, self.op_table = ready.config, ready.memory_plan, ready.op_table
        self._admission = Admission(self.config, self.tokenizer, self.memory_plan.max_cached_tokens)
        self._is_vocabulary_sent = False

    async def _hand_over(self, output: RequestOutput) -> None:
        if output.finish_reason is not None:
            self._pending.discard(output.request_id)
        stream = self._streams.get(output.request_id)
        if stream is None or stream.put(output):
            return
        for choice_id in stream.processors:
            await self._abort(choice_id)
