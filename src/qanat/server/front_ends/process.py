"""A front end: one of several processes that serve clients, without an engine of its own.

Started by `qanat.server.front_ends.crew` with the listening socket and its line to the parent as open files, and its
settings on standard input. That stays open as long as the parent lives: its end ends this process, at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import uvloop

from qanat.core.decision import Decision
from qanat.core.errors import QanatError
from qanat.core.log_lines import write_log
from qanat.engine.async_engine import AsyncEngine
from qanat.engine.attached_client import AttachedClient, CoreNews
from qanat.engine.attachment import attached
from qanat.engine.messages import LENGTH_BYTES
from qanat.engine.replica import Seat
from qanat.engine.restarts import RestartBudget
from qanat.server.front_ends.line import Line, Reply
from qanat.server.front_ends.shared_desk import SharedDesk
from qanat.server.front_ends.together import Together
from qanat.server.front_ends.words import (
    Question,
    ReplicaDown,
    ReplicaUp,
    Serving,
    Setup,
    Silence,
    Word,
)
from qanat.server.hosting import host
from qanat.server.logs import set_up_logs
from qanat.server.siblings import Alone, Company, Siblings
from qanat.server.tls import Tls

log = logging.getLogger(__name__)


@dataclass
class FollowedBudget(RestartBudget):
    """The restarts of a core that the parent decides on.

    Attributes:
        news: what it says.
    """

    news: CoreNews = field(default_factory=CoreNews)

    def next_delay_s(self) -> float | None:
        """What the parent said last."""
        return self.news.retry_in_s


class FrontEndProcess:
    """Serves clients with the parent's cores. To be made in the event loop.

    Args:
        setup: from the parent.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        options = setup.prepared.wishes
        max_restarts = options.max_engine_restarts if options.restart_engine else 0
        self._budgets = {
            rank: FollowedBudget(max_restarts) for rank in setup.prepared.config.parallel.local_ranks
        }
        for news in setup.replicas:
            self._hear(news)
        self._together: Together | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, sock: socket.socket, line_socket: socket.socket) -> int:
        """Serves until it is told to stop; returns the exit code.

        Raises:
            QanatError: a setting cannot be used.
        """
        line = await Line.over(line_socket, self._take)
        hearing = asyncio.create_task(line.run())

        def siblings(alone: Alone) -> Siblings:
            self._together = Together(line, alone)
            return self._together

        company = Company(SharedDesk(line), siblings)
        prepared = self._setup.prepared
        tls = Tls.of(prepared.wishes)
        is_early = not self._setup.replicas  # while the server starts, nobody else answers
        try:
            return await host(
                *(prepared, sock, tls, self._engine, lambda _: line.tell(Serving()), company),
                is_early=is_early,
            )
        finally:
            hearing.cancel()
            line.close()

    async def _engine(self, decisions: Sequence[Decision]) -> AsyncEngine:
        seats = [
            Seat(rank, partial(AttachedClient, self._setup.number, budget.news), budget)
            for rank, budget in self._budgets.items()
        ]
        begin = partial(attached, {rank: budget.news for rank, budget in self._budgets.items()})
        return await AsyncEngine.start(self._setup.prepared.config, decisions, seats=seats, begin=begin)

    def _take(self, word: Word, reply: Reply) -> None:
        if isinstance(word, ReplicaUp | ReplicaDown):
            self._hear(word)
        elif isinstance(word, Question):
            task = asyncio.create_task(self._answer(word, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _hear(self, news: ReplicaUp | ReplicaDown) -> None:
        budget = self._budgets[news.rank]
        budget.num_restarts = news.num_restarts
        if isinstance(news, ReplicaUp):
            budget.news.on_up(news.folder, news.pid, news.start_s)
        else:
            budget.news.on_down(news.reason, news.retry_in_s)

    async def _answer(self, question: Question, reply: Reply) -> None:
        if self._together is None:
            reply(Silence())
        else:
            reply(await self._together.answer(question))


async def serve(setup: Setup, sock: socket.socket, line_socket: socket.socket) -> int:
    """Serves until it is told to stop; returns the exit code."""
    return await FrontEndProcess(setup).run(sock, line_socket)


def read_setup() -> Setup | None:
    """The settings from standard input; None if the parent hung up before they were there."""
    size = int.from_bytes(sys.stdin.buffer.read(LENGTH_BYTES), "little")
    payload = sys.stdin.buffer.read(size)
    if not size or len(payload) < size:
        return None
    return msgspec.msgpack.decode(payload, type=Setup)


def end_with_parent() -> None:
    """Ends this process as soon as standard input ends; in a thread."""
    stdin = sys.stdin.fileno()

    def watch() -> None:
        while os.read(stdin, 1):  # not the buffered reader: its lock would be held when the interpreter ends
            pass
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def label_logs(number: int) -> None:
    """Begins every line of the log with the number of the front end."""

    def label(record: logging.LogRecord) -> bool:
        record.msg = f"[front end {number}] {record.msg}"
        return True

    for handler in logging.getLogger().handlers:
        handler.addFilter(label)


def main(socket_file: int, line_file: int, log_level: int, log_format: str) -> int:
    """Runs the process; returns its exit code."""
    write_log(log_format, log_level)
    setup = read_setup()
    if setup is None:
        return 0
    end_with_parent()
    set_up_logs(setup.prepared.wishes)
    label_logs(setup.number)
    sock, line_socket = socket.socket(fileno=socket_file), socket.socket(fileno=line_file)
    try:
        with contextlib.closing(sock), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve(setup, sock, line_socket))
    except QanatError as error:
        log.critical("%s", error.message)
        return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
