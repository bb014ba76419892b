"""The line between the parent and one front end: words told, and words asked that have an answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import Callable
from typing import TypeVar

import msgspec

from qanat.server.errors import UnavailableError
from qanat.server.front_ends.words import Silence, Word

log = logging.getLogger(__name__)

LENGTH_BYTES = 4
ANSWER_S = 5.0
"""How long an answer may take unless the asker says otherwise."""
Reply = Callable[[Word], None]
Kind = TypeVar("Kind", bound=msgspec.Struct)


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """One word on its way.

    Attributes:
        number: of the question that it is or answers; 0 if no answer is wanted.
        is_answer: it answers a question of the receiver.
        word: what is said.
    """

    number: int
    is_answer: bool
    word: Word


class Line:
    """One end of it; use `over`. Words arrive in the order in which they were said.

    Args:
        reader: of the socket.
        writer: likewise.
        take: is given every word that is no answer, in order, and how to answer it, now or later.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        take: Callable[[Word, Reply], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._take = take
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Word]] = {}
        self._is_closed = False
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Frame)

    @classmethod
    async def over(cls, sock: socket.socket, take: Callable[[Word, Reply], None]) -> Line:
        """The line over a connected Unix socket, which belongs to it from now on."""
        return cls(*await asyncio.open_unix_connection(sock=sock), take)

    async def run(self) -> None:
        """Takes words until the other end is gone."""
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "little")
                self._receive(self._decoder.decode(await self._reader.readexactly(size)))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.close()

    def tell(self, word: Word) -> None:
        """Sends a word; to nobody, if the other end is gone."""
        self._send(Frame(0, False, word))

    async def ask(self, word: Word, kind: type[Kind], limit_s: float = ANSWER_S) -> Kind:
        """Sends a word and waits for its answer.

        Args:
            word: the question.
            kind: of the answer.
            limit_s: how long it may take.

        Raises:
            UnavailableError: the other end is gone or stands still, or cannot answer that yet.
        """
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            if self._is_closed:
                raise unanswered()
            self._send(Frame(number, False, word))
            async with asyncio.timeout(limit_s):
                said = await answer
        except TimeoutError:
            raise unanswered() from None
        finally:
            del self._asked[number]
        if not isinstance(said, kind):
            raise unanswered()
        return said

    def close(self) -> None:
        """Ends the line; who waits for an answer is told. Safe to call twice."""
        self._is_closed = True
        self._writer.close()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(unanswered())

    def _receive(self, frame: Frame) -> None:
        if frame.is_answer:
            answer = self._asked.get(frame.number)
            if answer is not None and not answer.done():
                answer.set_result(frame.word)
            return
        try:
            self._take(frame.word, lambda word: self._reply(frame.number, word))
        except Exception:
            log.exception("A word between server processes could not be taken: %s", type(frame.word).__name__)
            self._reply(frame.number, Silence())

    def _reply(self, number: int, word: Word) -> None:
        if number:
            self._send(Frame(number, True, word))

    def _send(self, frame: Frame) -> None:
        if self._is_closed:
            return
        body = self._encoder.encode(frame)
        with contextlib.suppress(OSError):
            self._writer.write(len(body).to_bytes(LENGTH_BYTES, "little") + body)


def unanswered() -> UnavailableError:
    """The error of a question that another process has not answered."""
    return UnavailableError("Another process of the server does not answer; try again.", retry_after_s=1)
