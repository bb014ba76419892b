"""The real front end of the engine over a core that costs next to nothing: one constant token per request and step."""

from __future__ import annotations

import asyncio
import time

import msgspec

from qanat.core.errors import EngineDeadError
from qanat.core.outputs import RequestOutput, RequestTiming
from qanat.core.request import FinishReason
from qanat.engine.async_engine import AsyncEngine
from qanat.engine.messages import AbortRequest, AddRequests, FromCore, Ready, StepDone, ToCore
from qanat.engine.replica import Seat, Started
from qanat.scheduler.stats import SchedulerStats
from tests.support.scripted_engine import start_scripted_engine

WORD = " word"
"""What every token says."""


class StubClient:
    """Takes the place of `ProcessClient`. The messages are encoded and decoded as those of a real core are.

    Args:
        token_id: the constant token.
        period_s: time between steps; 0 makes a step in every turn of the event loop.

    Attributes:
        abort_times_s: monotonic time at which the abort of each request arrived, by the core's id.
        num_tokens: emitted so far.
    """

    pid = None

    def __init__(self, token_id: int, period_s: float) -> None:
        self._token_id = token_id
        self._period_s = period_s
        self._last_steps: dict[str, int] = {}  # by request: the step with its last token
        self._ended: list[str] = []
        self._has_changed = True
        self._next_end = 0
        self._message = b""
        self._has_news = asyncio.Event()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(FromCore)
        self._next_step_s = 0.0
        self._num_steps = 0
        self._is_stopped = False
        self.abort_times_s: dict[str, float] = {}
        self.num_tokens = 0

    async def send(self, message: ToCore) -> None:
        """Takes a request or an abort."""
        self._encoder.encode(message)
        if isinstance(message, AddRequests):
            for request in message.requests:
                assert request.sampling.max_tokens is not None
                self._last_steps[request.request_id] = self._num_steps + request.sampling.max_tokens
        elif isinstance(message, AbortRequest):
            self.abort_times_s[message.request_id] = time.monotonic()
            if self._last_steps.pop(message.request_id, None) is not None:
                self._ended.append(message.request_id)
        self._has_changed = True
        self._has_news.set()

    async def receive(self) -> FromCore:
        """The next step, when its time has come.

        Raises:
            EngineDeadError: it was stopped.
        """
        early_s = self._next_step_s - time.monotonic()
        if early_s > 0 or not self._period_s:
            await asyncio.sleep(max(0.0, early_s))
        while not (self._last_steps or self._ended):
            if self._is_stopped:
                raise EngineDeadError("The stub was stopped.")
            self._has_news.clear()
            await self._has_news.wait()
            self._next_step_s = time.monotonic()
        self._next_step_s += self._period_s
        return self._decoder.decode(self._encode_step())

    async def stop(self) -> None:
        """Ends `receive`."""
        self._is_stopped = True
        self._last_steps.clear()
        self._has_news.set()

    def _encode_step(self) -> bytes:
        """A step's message: the last one again where nothing changed, as a real core makes it in another process."""
        self._num_steps += 1
        self.num_tokens += len(self._last_steps)
        if self._has_changed or self._num_steps >= self._next_end:
            self._message = self._encoder.encode(self._step())
        return self._message

    def _step(self) -> StepDone:
        outputs = [
            RequestOutput(request_id=request_id, finish_reason=FinishReason.ABORT)
            for request_id in self._ended
        ]
        finished = [request_id for request_id, last in self._last_steps.items() if last <= self._num_steps]
        for request_id in self._last_steps:
            outputs.append(RequestOutput(request_id=request_id, new_token_ids=[self._token_id]))
        for request_id in finished:
            del self._last_steps[request_id]
            outputs.append(
                RequestOutput(
                    request_id=request_id, finish_reason=FinishReason.LENGTH, timing=RequestTiming()
                )
            )
        self._has_changed = bool(finished or self._ended)
        self._ended = []
        self._next_end = min(self._last_steps.values(), default=0)
        return StepDone(outputs, SchedulerStats(num_running=len(self._last_steps)), self._num_steps)


def start_stub_engine(period_s: float, max_num_seqs: int = 1024) -> tuple[AsyncEngine, StubClient]:
    """Builds one; to be called where an event loop runs."""
    scripted = start_scripted_engine(max_num_seqs=max_num_seqs, max_model_len=65536)
    client = StubClient(scripted.tokenizer.piece_id(WORD), period_s)
    ready = Ready(scripted.engine.config, scripted.engine.memory_plan, [], [])
    started = Started(Seat(), client, ready)  # type: ignore[arg-type]
    return AsyncEngine(scripted.tokenizer, [started]), client
