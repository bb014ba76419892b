"""Sends requests at the times of a schedule made before the run, and measures how well the client kept to it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from qanat.bench.client.client import Client
from qanat.bench.client.recording import Recording

BEAT_S = 0.01
MARGIN_S = 0.0015
"""An event loop's timers are a millisecond coarse: the last of the wait is spent turning the loop."""
MAX_TURN_NS = 1_000_000
"""Requests are sent without a turn of the loop for so long at most."""


@dataclass(frozen=True)
class Planned:
    """A request of the plan.

    Attributes:
        index: place among all requests.
        at_s: when it is to be sent, from the start of the run.
        request: head and body, ready to be written.
    """

    index: int
    at_s: float
    request: bytes


@dataclass
class LoadRecord:
    """What a run left.

    Attributes:
        start_ns: `time.monotonic_ns` of its start.
        end_ns: when the last answer had ended.
        recordings: of all requests that were begun, in the order of their beginning.
        beat_delays_s: how late the event loop was, every `BEAT_S`.
        cpu_s: processor time of this process in it.
        num_opened: connections opened.
        num_pieces: in which the answers came.
        reading_cpu_s: processor time of reading them, after the run.
        is_stopped: it was ended before all was sent.
    """

    start_ns: int = 0
    end_ns: int = 0
    recordings: list[Recording] = field(default_factory=list)
    beat_delays_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    num_opened: int = 0
    num_pieces: int = 0
    reading_cpu_s: float = 0.0
    is_stopped: bool = False

    @property
    def wall_s(self) -> float:
        """Seconds from its start to its end."""
        return (self.end_ns - self.start_ns) / 1e9


Follow = Callable[[Recording, float], Planned | None]
"""Given an ended recording and the seconds since the start: the request that follows from it, if one does."""


class Load:
    """One run.

    Args:
        client: sends.
        max_concurrency: requests under way at most; 0 for no bound.
        is_closed_loop: without a rate, a request is intended for the moment at which a place becomes free.
        follow: see `Follow`.
    """

    def __init__(
        self,
        client: Client,
        *,
        max_concurrency: int = 0,
        is_closed_loop: bool = False,
        follow: Follow | None = None,
    ) -> None:
        self._client = client
        self._max_concurrency = max_concurrency
        self._is_closed_loop = is_closed_loop
        self._follow = follow
        self._waiting: deque[tuple[Recording, bytes]] = deque()
        self._later: set[asyncio.Task[None]] = set()
        self._num_left = 0
        self._is_over = asyncio.Event()
        self._error: Exception | None = None
        self.record = LoadRecord()
        self.num_running = 0
        self.num_done = 0

    async def run(self, plan: Sequence[Planned]) -> LoadRecord:
        """Sends everything and waits for every answer. Cancelled, it keeps what there is."""
        if not plan:
            return self.record
        self._num_left = len(plan)
        num_opened = self._client.num_opened
        with _no_collections():
            beating = asyncio.create_task(self._beat())
            cpu_s = time.process_time()
            self.record.start_ns = time.monotonic_ns()
            try:
                await self._send(plan)
                await self._is_over.wait()
            except asyncio.CancelledError:
                self.record.is_stopped = True
                self._waiting.clear()
                self._client.close()
            finally:
                self.record.end_ns = time.monotonic_ns()
                self.record.cpu_s = time.process_time() - cpu_s
                for task in (beating, *self._later):
                    task.cancel()
        self.record.num_opened = self._client.num_opened - num_opened
        if self._error is not None:
            raise self._error
        return self.record

    async def _send(self, plan: Sequence[Planned]) -> None:
        turned_ns = time.monotonic_ns()
        for planned in plan:
            due_ns = self.record.start_ns + round(planned.at_s * 1e9)
            if due_ns > time.monotonic_ns():
                await _wait_until(due_ns)
                turned_ns = time.monotonic_ns()
            elif time.monotonic_ns() - turned_ns > MAX_TURN_NS:
                await asyncio.sleep(0)
                turned_ns = time.monotonic_ns()
            self._offer(planned, due_ns)

    def _offer(self, planned: Planned, due_ns: int) -> None:
        recording = Recording(planned.index, due_ns)
        if self._max_concurrency and self.num_running >= self._max_concurrency:
            self._waiting.append((recording, planned.request))
        else:
            self._begin(recording, planned.request)

    def _begin(self, recording: Recording, request: bytes) -> None:
        self.num_running += 1
        self.record.recordings.append(recording)
        self._client.send(recording, request, self._ended)

    def _ended(self, recording: Recording) -> None:
        self.num_running -= 1
        self.num_done += 1
        self._num_left -= 1
        try:
            if self._follow is not None:
                self._continue(recording)
            if self._waiting and not self.record.is_stopped:
                following, request = self._waiting.popleft()
                following.ready_ns = max(following.intended_ns, recording.end_ns)
                if self._is_closed_loop:
                    following.intended_ns = following.ready_ns
                self._begin(following, request)
        except Exception as error:
            self._error = error
            self._is_over.set()
        if not self._num_left:
            self._is_over.set()

    def _continue(self, recording: Recording) -> None:
        assert self._follow is not None
        planned = self._follow(recording, (recording.end_ns - self.record.start_ns) / 1e9)
        if planned is not None and not self.record.is_stopped:
            self._num_left += 1
            task = asyncio.get_running_loop().create_task(self._offer_later(planned))
            self._later.add(task)
            task.add_done_callback(self._later.discard)

    async def _offer_later(self, planned: Planned) -> None:
        due_ns = self.record.start_ns + round(planned.at_s * 1e9)
        await _wait_until(due_ns)
        self._offer(planned, due_ns)

    async def _beat(self) -> None:
        while True:
            due_ns = time.monotonic_ns() + round(BEAT_S * 1e9)
            await asyncio.sleep(BEAT_S)
            self.record.beat_delays_s.append((time.monotonic_ns() - due_ns) / 1e9)


async def _wait_until(due_ns: int) -> None:
    while True:
        left_s = (due_ns - time.monotonic_ns()) / 1e9
        if left_s <= 0:
            return
        await asyncio.sleep(left_s - MARGIN_S if left_s > 2 * MARGIN_S else 0)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Keeps the garbage collector from stopping the client in the middle of a run."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
