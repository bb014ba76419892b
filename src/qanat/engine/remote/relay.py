"""A host's engine cores: started and ended as the head asks, fed with what it sends, heard on its behalf."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import EngineDeadError, QanatError
from qanat.engine.process_client import ProcessClient
from qanat.engine.remote.head_line import HeadLine
from qanat.engine.remote.messages import (
    AskForStacks,
    CoreDown,
    CoreSaid,
    CoreUp,
    ForCore,
    Stacks,
    StartCore,
    StopCore,
    ToHost,
)

logger = logging.getLogger(__name__)

MAX_LETTERS = 4000
"""So much of an error's text is told to the head."""


class Relay:
    """The cores of this host, and the head at the other end of the line.

    Args:
        line: to a head that this process has joined.
        config: what cores are started with.
    """

    def __init__(self, line: HeadLine, config: ResolvedConfig) -> None:
        self._line = line
        self._config = config
        self._clients: dict[int, ProcessClient] = {}  # by life
        self._lives: dict[int, int] = {}  # by replica
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by life
        self._questions: set[asyncio.Task[None]] = set()

    async def handle(self, message: ToHost, payload: bytes) -> None:
        """Does what the head asks; what takes longer goes on in a task."""
        if isinstance(message, ForCore):
            if client := self._clients.get(message.life):
                with contextlib.suppress(EngineDeadError):  # its task tells the head
                    await client.send_encoded(payload)
        elif isinstance(message, StartCore):
            before = self._stop(self._lives.get(message.replica, 0))
            self._lives[message.replica] = message.life
            self._tasks[message.life] = asyncio.create_task(
                self._run(message.replica, message.life, before), name=f"replica {message.replica}"
            )
        elif isinstance(message, StopCore):
            self._stop(message.life)
        elif isinstance(message, AskForStacks):
            question = asyncio.create_task(self._tell_stacks(message.life))
            self._questions.add(question)
            question.add_done_callback(self._questions.discard)

    async def close(self) -> None:
        """Ends all cores."""
        tasks = [*self._tasks.values(), *self._questions]
        for task in tasks:
            _cancel_once(task)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self, life: int) -> asyncio.Task[None] | None:
        """Has the task of a core end it; returns the task, None if there is none."""
        task = self._tasks.get(life)
        if task is not None:
            _cancel_once(task)
        return task

    async def _run(self, replica: int, life: int, before: asyncio.Task[None] | None) -> None:
        """One core from its start to its end."""
        client: ProcessClient | None = None
        try:
            if before is not None:  # there may be no room for both
                await asyncio.gather(before, return_exceptions=True)
            client = ProcessClient()
            ready = await client.start(self._config.of_replica(replica))
            self._clients[life] = client
            up = CoreUp(life, client.pid or 0, client.start_s)
            await self._line.send(up, msgspec.msgpack.encode(ready))
            logger.info("Replica %d serves, as process %s.", replica, client.pid)
            while True:
                await self._line.send(CoreSaid(life), await client.receive_encoded())
        except Exception as error:  # whatever it is, the head may not wait for this core
            words = client.last_words() if client is not None else ""
            is_defect = not isinstance(error, QanatError | OSError)
            code = error.code if isinstance(error, QanatError) else EngineDeadError.code
            text = f"its host's end failed ({type(error).__name__}: {error})" if is_defect else str(error)
            logger.error("Replica %d: %s%s", replica, text, words, exc_info=error if is_defect else None)
            await self._line.send(CoreDown(life, code, text[:MAX_LETTERS], words.strip()))
        finally:
            self._clients.pop(life, None)
            self._tasks.pop(life, None)
            if client is not None:
                await client.stop()

    async def _tell_stacks(self, life: int) -> None:
        client = self._clients.get(life)
        text = await client.ask_for_stacks() if client is not None else "(no process)"
        await self._line.send(Stacks(life, text))


def _cancel_once(task: asyncio.Task[None]) -> None:
    """Cancels a task unless that was done before: a second time would interrupt it while it ends its core."""
    if not task.cancelling():
        task.cancel()
