"""In the parent: the processes that serve clients. One that ends is replaced, after a while if it did not last."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from qanat.config.prepare import Prepared
from qanat.core.log_lines import present_format
from qanat.engine.last_words import describe_exit
from qanat.engine.messages import LENGTH_BYTES
from qanat.engine.metrics import EngineStats
from qanat.server.front_ends.line import Line, Reply
from qanat.server.front_ends.words import ReplicaDown, ReplicaUp, Serving, Setup, Word

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 30.0
LASTING_S = 60.0
"""One that lived so long is replaced as if it were the first to end."""


@dataclass
class FrontEnd:
    """One process that serves clients, as the parent sees it.

    Attributes:
        number: its own; never used again.
        process: of the operating system.
        line: to it.
        is_serving: it answers requests.
        stats: what it counted when it was last asked; None before.
    """

    number: int
    process: asyncio.subprocess.Process
    line: Line
    is_serving: bool = False
    stats: EngineStats | None = None

    def signal(self, number: int) -> None:
        """Sends a signal, if it still lives."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


class Crew:
    """Keeps so many front ends.

    Args:
        prepared: every setting.
        sock: what they accept connections from.
        on_start: called with each new one; returns what it is to know of the replicas.
        on_end: called when one has ended.
        take: is given what they say.

    Attributes:
        front_ends: those that live, by number.
        all_serving: set once each of the first ones serves.
        failed: set once one of the first ones has ended without having served.
    """

    def __init__(
        self,
        prepared: Prepared,
        sock: socket.socket,
        *,
        on_start: Callable[[FrontEnd], list[ReplicaUp | ReplicaDown]],
        on_end: Callable[[FrontEnd], None],
        take: Callable[[FrontEnd, Word, Reply], None],
    ) -> None:
        self._prepared = prepared
        self._sock = sock
        self._on_start, self._on_end, self._take = on_start, on_end, take
        self._numbers = itertools.count(1)
        self._places: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self.front_ends: dict[int, FrontEnd] = {}
        self.all_serving = asyncio.Event()
        self.failed = asyncio.Event()

    def start(self, num_front_ends: int) -> None:
        """Starts them; each is replaced from now on."""
        self._places = [asyncio.create_task(self._keep_one()) for _ in range(num_front_ends)]

    def signal(self, number: int) -> None:
        """Passes a signal on to all; none is replaced any more."""
        self._stopping.set()
        for front_end in self.front_ends.values():
            front_end.signal(number)

    async def join(self, timeout_s: float) -> None:
        """Returns once all have ended, by force after the time; none is replaced any more."""
        self._stopping.set()
        if self._places:
            _, late = await asyncio.wait(self._places, timeout=timeout_s)
            if late:
                log.warning("%d server processes do not end; they are killed.", len(self.front_ends))
                self.signal(signal.SIGKILL)
            await asyncio.gather(*self._places, return_exceptions=True)

    async def _keep_one(self) -> None:
        delay_s = FIRST_DELAY_S
        while not self._stopping.is_set():
            start_s = time.monotonic()
            try:
                front_end = await self._started()
            except OSError as error:
                log.error("A server process could not be started: %s.", error.strerror)
            else:
                await self._until_end(front_end)
            if time.monotonic() - start_s > LASTING_S:
                delay_s = FIRST_DELAY_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)
            delay_s = min(MAX_DELAY_S, 2 * delay_s)

    async def _started(self) -> FrontEnd:
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "qanat.server.front_ends.process",
                    str(self._sock.fileno()),
                    str(theirs.fileno()),
                    str(logging.getLogger().getEffectiveLevel()),
                    present_format(),
                    stdin=asyncio.subprocess.PIPE,
                    pass_fds=(self._sock.fileno(), theirs.fileno()),
                    start_new_session=True,  # Ctrl-C is for the parent, which passes it on
                )
            except BaseException:
                ours.close()
                raise
        line = await Line.over(ours, lambda word, reply: self._hear(front_end, word, reply))
        front_end = FrontEnd(number, process, line)
        self.front_ends[number] = front_end
        payload = msgspec.msgpack.encode(Setup(number, self._prepared, self._on_start(front_end)))
        assert process.stdin is not None
        process.stdin.write(len(payload).to_bytes(LENGTH_BYTES, "little") + payload)
        if self._stopping.is_set():  # it came too late for the signal
            front_end.signal(signal.SIGTERM)
        return front_end

    async def _until_end(self, front_end: FrontEnd) -> None:
        listening = asyncio.create_task(front_end.line.run())
        try:
            code = await front_end.process.wait()
        finally:
            listening.cancel()
            front_end.line.close()
            del self.front_ends[front_end.number]
            self._on_end(front_end)
        if self._stopping.is_set():
            return
        if not front_end.is_serving and not self.all_serving.is_set():
            self.failed.set()
        log.error(
            "Front end %d (process %d) %s; another one takes its place.",
            *(front_end.number, front_end.process.pid, describe_exit(code)),
        )

    def _hear(self, front_end: FrontEnd, word: Word, reply: Reply) -> None:
        if isinstance(word, Serving):
            front_end.is_serving = True
            if sum(one.is_serving for one in self.front_ends.values()) == len(self._places):
                self.all_serving.set()
        else:
            self._take(front_end, word, reply)
