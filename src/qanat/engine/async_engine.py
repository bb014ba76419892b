"""The engine as the server and asynchronous programs see it. Torch stays in the core's process."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence

import msgspec

from qanat.config.engine_config import EngineConfig
from qanat.config.prepare import prepare
from qanat.config.resolved import ResolvedConfig
from qanat.core.constraint import Thinking
from qanat.core.decision import Decision
from qanat.core.errors import (
    InvalidRequestError,
    QanatError,
    QueueFullError,
)
from qanat.core.events import GenerationEvent
from qanat.core.outputs import RequestOutput, RequestTiming
from qanat.core.profile import ProfileReport
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.core.timeouts import Timeouts
from qanat.engine.admission import Admission
from qanat.engine.continuation import PriorOutput
from qanat.engine.core_line import EngineHealth
from qanat.engine.form_desk import FormDesk
from qanat.engine.metrics import EngineMetrics, EngineStats
from qanat.engine.refusals import refusal_of
from qanat.engine.remote.head import local_seats
from qanat.engine.replica import Beginning, Reader, Replica, Seat, Started, start_replicas
from qanat.engine.replicas import Replicas
from qanat.engine.request_stream import RequestStream
from qanat.engine.restarts import RestartBudget
from qanat.engine.tokenizer import Tokenizer, load_tokenizer


class AsyncEngine:
    """Generates tokens for many callers at once. Use `await AsyncEngine.create(EngineConfig(model=...))`.

    Each call goes, with all its choices, to one of the replicas. One that dies ends its own calls only.

    Args:
        tokenizer: the checkpoint's tokenizer.
        started: replicas that serve, at least one.
        decisions: on settings, to be kept with those of the start.

    Attributes:
        config: the resolved configuration.
        tokenizer: the checkpoint's tokenizer.
        decisions: every setting that was derived or overridden, with the reason.
        memory_plan: what the core of a replica allocated.
        op_table: kernel providers, one line per op.
        replicas: who computes.
    """

    def __init__(
        self, tokenizer: Tokenizer, started: Sequence[Started], decisions: Sequence[Decision] = ()
    ) -> None:
        self.tokenizer = tokenizer
        said = [decision for one in started for decision in one.ready.decisions]
        self.decisions = [*decisions, *(one for i, one in enumerate(said) if one not in said[:i])]
        self._forms = FormDesk(tokenizer, started[0].ready.config)
        self._streams: dict[str, RequestStream] = {}  # by the ids of the core
        self._calls: dict[str, RequestStream] = {}  # by the ids of the callers
        self._num_calls = 0
        self._refusal: QanatError | None = None
        reader = Reader(self._hand_over, self._on_death, self._take_figures, self._forms.vocabulary.packed)
        self.replicas = Replicas(started, reader)
        self._take_figures(self.replicas.first)

    @classmethod
    async def start(
        cls,
        config: ResolvedConfig,
        decisions: Sequence[Decision] = (),
        restarts: RestartBudget | None = None,
        seats: Sequence[Seat] | None = None,
        begin: Beginning = start_replicas,
    ) -> AsyncEngine:
        """Starts all replicas' processes and waits until the model is loaded.

        Args:
            config: every setting.
            decisions: on settings, to be kept with those of the start.
            restarts: how often a core that dies is replaced, of each replica; None never does.
            seats: where cores come from; None makes the replicas of this host processes of this one.
            begin: starts the first core of each seat, or finds it.

        Raises:
            ConfigError: without seats, replicas of other hosts.
            CheckpointError: the model folder cannot be served.
            CapacityError: weights or cache do not fit.
            EngineDeadError: a core did not come up.
        """
        tokenizer, config = load_tokenizer(config)
        if seats is None:
            seats = local_seats(config, restarts.max_restarts if restarts else 0)
        engine = cls(tokenizer, await begin(seats, config), decisions)
        for replica in engine.replicas:
            await replica.send_vocabulary()
            replica.log_start()
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
        boundaries: Sequence[int] = (),
        thinking: Thinking = Thinking.NONE,
        output_token_ids: PriorOutput = (),
        data_parallel_rank: int | None = None,
    ) -> AsyncIterator[GenerationEvent]:
        """Events of all n choices, interleaved; ends when each has had its finish reason. Closing it aborts the rest.

        Args:
            prompt_token_ids: the prompt.
            sampling: how tokens are chosen.
            request_id: unique among live calls; None makes one up.
            priority: lower runs first under the priority policy.
            timeout_s: until the request ends with an error; a number bounds the whole.
            cache_salt: keeps prefixes of different owners apart.
            owner: whose request it is.
            boundaries: positions in the prompt at which later prompts are likely to part from it.
            thinking: whether the output begins with reasoning, which a form leaves free.
            output_token_ids: of choices that are continued, None for ended ones; counts include it, events what is new.
            data_parallel_rank: the replica that is to compute it; None takes the one with the least to do.

        Raises:
            InvalidRequestError, ContextLengthError, QueueFullError: before the first event.
            StructuredOutputError: before the first token of any choice, the form cannot be compiled or followed;
                afterwards an event of that choice says so, as of any error that is its own.
            EngineDeadError: the replica dies, or all are dead.
        """
        self.replicas.check_rank(data_parallel_rank)
        request_id = self._new_id(request_id)
        requests = self._admission.requests(
            prompt_token_ids,
            sampling,
            # A caller may use an id again while the core's last words on its former use are still on their way.
            request_id=f"{request_id}.{self._num_calls}",
            priority=priority,
            timeout_s=timeout_s,
            cache_salt=cache_salt,
            owner=owner,
            boundaries=boundaries,
            output_token_ids=output_token_ids,
        )
        stream = RequestStream(request_id, self.tokenizer, requests, data_parallel_rank)
        self._calls[request_id] = stream
        try:
            self._raise_obstacle(stream)
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
            await self._abort(stream, choice_id)
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
        self._metrics(stream).on_finished(stream.requests[choice_id], event)
        await self._abort(stream, choice_id)
        return timing

    async def end_all(self, error: QanatError) -> None:
        """Ends all requests with an error; new ones are still taken."""
        for stream in list(self._calls.values()):
            stream.fail(error)
            stream.end_preparation()
            for choice_id in stream.processors:
                await self._abort(stream, choice_id)

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
        return sum(replica.line.num_restarts for replica in self.replicas)

    async def start_profile(self) -> None:
        """Records the steps of all replicas from now on, as --profiler-config says.

        Raises:
            ProfilerStateError: a profile is recorded or written already, or profiling is switched off.
            ProfileWriteError, EngineDeadError: the folder cannot be written to; the engine is dead or dies.
        """
        await self.replicas.start_profile()

    async def stop_profile(self) -> ProfileReport:
        """Ends the profile and waits for its files; of one that ended by itself, what became of it.

        Raises:
            ProfilerStateError: there is no profile.
            ProfileWriteError, EngineDeadError: its files will not come.
        """
        return await self.replicas.stop_profile()

    async def reset_prefix_cache(self) -> None:
        """Forgets all cached prefixes of all replicas, on disk too.

        Raises:
            PrefixesInUseError: requests run on one of them, which keeps its own.
            EngineDeadError: the engine is dead or dies.
        """
        await self.replicas.reset_prefixes()

    @property
    def core_pid(self) -> int | None:
        """Process id of the first replica's core."""
        return self.replicas.first.line.pid

    def health(self) -> EngineHealth:
        """See `EngineHealth`; costs nothing."""
        return self.replicas.health()

    def stats(self) -> EngineStats:
        """Counters, gauges and histograms since the start."""
        return self.replicas.stats(self._forms.stats())

    async def shutdown(self) -> None:
        """Ends all requests and the cores' processes. Safe to call twice."""
        await self.replicas.close()
        await self._forms.shutdown()

    def _new_id(self, wanted: str | None) -> str:
        request_id = wanted or uuid.uuid4().hex
        if request_id in self._calls:
            raise InvalidRequestError(f"A request with id {request_id} is still running.", param="request_id")
        self._num_calls += 1
        return request_id

    def _raise_obstacle(self, stream: RequestStream) -> None:
        obstacle = self.replicas.obstacle(stream.rank) or self._refusal
        if obstacle is not None:
            raise obstacle.with_traceback(None)  # else each raise would lengthen it

    async def _submit(self, stream: RequestStream) -> None:
        self._raise_obstacle(stream)
        replica = self.replicas.choose(stream.rank)
        assert replica is not None
        for choice_id in stream.requests:
            self._streams[choice_id] = stream
        stream.home = replica
        await replica.submit(list(stream.requests.values()))

    async def _move(self, stream: RequestStream) -> bool:
        """Sends a call, whose replica has no room, to another one; False if each has been tried."""
        old = stream.home
        assert old is not None
        stream.tried_ranks.add(old.rank)
        replica = self.replicas.choose(stream.rank, stream.tried_ranks)
        if replica is None:
            return False
        left_over = list(stream.processors)  # choices that it took, unlike the one that it refused
        stream.begin_anew()
        stream.home = replica
        try:
            await replica.submit(list(stream.requests.values()))
        finally:
            for choice_id in left_over:
                old.metrics.on_refused(stream.requests[choice_id])
                await old.abort(choice_id)
            for choice_id in stream.requests:
                old.leave(choice_id)
        return True

    async def _next_event(self, stream: RequestStream) -> GenerationEvent:
        while True:
            try:
                return await self._next_event_here(stream)
            except QueueFullError:
                if not await self._move(stream):
                    raise

    async def _next_event_here(self, stream: RequestStream) -> GenerationEvent:
        while True:
            output = await stream.get()
            processor = stream.processors.get(output.request_id)
            if processor is None:  # the choice ended at a stop string; this is what the core did meanwhile
                continue
            self._raise_refusal(output, stream)
            stream.has_begun |= bool(output.new_token_ids)
            step = processor.process(output)
            if step.must_abort:
                await self._abort(stream, output.request_id)
            if step.event.finish_reason is not None:
                del stream.processors[output.request_id]
                self._metrics(stream).on_finished(stream.requests[output.request_id], step.event)
            return step.event

    async def _close(self, stream: RequestStream) -> None:
        if self._calls.get(stream.request_id) is stream:
            del self._calls[stream.request_id]
        replica = stream.home
        if replica is None:
            return
        for choice_id, request in stream.requests.items():
            self._streams.pop(choice_id, None)
            if choice_id in stream.processors and replica.is_up:
                replica.metrics.on_aborted(request)
                await replica.abort(choice_id)
            replica.leave(choice_id)

    async def _abort(self, stream: RequestStream, choice_id: str) -> None:
        if stream.home is not None:
            await stream.home.abort(choice_id)

    def _metrics(self, stream: RequestStream) -> EngineMetrics:
        """Where it counts; a call that no replica has had yet counts with the first."""
        return (stream.home or self.replicas.first).metrics

    def _raise_refusal(self, output: RequestOutput, stream: RequestStream) -> None:
        error = None if stream.has_begun else refusal_of(output)
        if error is not None:
            del stream.processors[output.request_id]
            self._metrics(stream).on_refused(stream.requests[output.request_id])
            error.has_cost = stream.has_cost
            raise error

    def _on_death(self, replica: Replica, error: QanatError) -> None:
        is_last = self.replicas.obstacle() is not None
        for stream in self._calls.values():
            if stream.home is replica or (stream.home is None and is_last):
                stream.fail(error)
                stream.end_preparation()

    def _take_figures(self, _: Replica) -> None:
        """A replica has started: what a request may ask for is what every replica can do."""
        least = min(self.replicas, key=lambda one: one.config.scheduler.max_model_len)
        self.config, self.memory_plan, self.op_table = least.config, least.memory_plan, least.op_table
        max_cached_tokens = min(one.memory_plan.max_cached_tokens for one in self.replicas)
        self._admission = Admission(self.config, self.tokenizer, max_cached_tokens)

    async def _hand_over(self, replica: Replica, output: RequestOutput) -> None:
        stream = self._streams.get(output.request_id)
        if stream is None or stream.home is not replica or stream.put(output):
            return
        for choice_id in stream.processors:
            await replica.abort(choice_id)
