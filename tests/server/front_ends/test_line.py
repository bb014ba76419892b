"""The line between the parent and a front end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from qanat.server.errors import UnavailableError
from qanat.server.front_ends.line import Line, Reply
from qanat.server.front_ends.words import AbortAnswer, AbortQuestion, Serving, Silence, Word

pytestmark = pytest.mark.asyncio


@contextlib.asynccontextmanager
async def line_to(take: Callable[[Word, Reply], None]) -> AsyncIterator[tuple[Line, Line]]:
    """This end and the other one, whose words go to `take`."""
    ours, theirs = socket.socketpair()
    ends = (await Line.over(ours, lambda word, reply: None), await Line.over(theirs, take))
    running = [asyncio.create_task(end.run()) for end in ends]
    try:
        async with asyncio.timeout(60):
            yield ends
    finally:
        for end in ends:
            end.close()
        await asyncio.gather(*running)


async def test_words_arrive_in_order_and_questions_get_their_own_answers_in_any() -> None:
    heard: list[str] = []
    waiting: list[tuple[Reply, Word]] = []

    def take(word: Word, reply: Reply) -> None:
        if not isinstance(word, AbortQuestion):
            return
        heard.append(word.request_id)
        waiting.append((reply, AbortAnswer(int(word.request_id))))
        if len(waiting) == 20:
            for answer, said in reversed(waiting):
                answer(said)

    async with line_to(take) as (line, _):
        answers = await asyncio.gather(*(line.ask(AbortQuestion(str(i)), AbortAnswer) for i in range(20)))
        assert [one.num_aborted for one in answers] == list(range(20))
        assert heard == [str(i) for i in range(20)]


@pytest.mark.parametrize("is_raised", [True, False])
async def test_a_question_that_cannot_be_answered_is_an_error_for_who_asks(is_raised: bool) -> None:
    def take(word: Word, reply: Reply) -> None:
        if is_raised:
            raise ValueError("a defect of the test")
        reply(Silence())

    async with line_to(take) as (line, _):
        with pytest.raises(UnavailableError):
            await line.ask(AbortQuestion("a"), AbortAnswer)


async def test_an_answer_that_does_not_come_is_not_waited_for_without_end() -> None:
    async with line_to(lambda word, reply: None) as (line, _):
        with pytest.raises(UnavailableError):
            await line.ask(AbortQuestion("a"), AbortAnswer, 0.01)


async def test_the_end_of_the_other_end_ends_every_wait() -> None:
    async with line_to(lambda word, reply: None) as (line, other):
        asking = asyncio.create_task(line.ask(AbortQuestion("a"), AbortAnswer))
        await asyncio.sleep(0)
        other.close()
        with pytest.raises(UnavailableError):
            await asking
        line.tell(Serving())
        with pytest.raises(UnavailableError):
            await line.ask(AbortQuestion("b"), AbortAnswer)
