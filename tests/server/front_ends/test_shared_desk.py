"""Bounds of keys hold over all front ends together, and what one leaves behind at its death is settled."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from qanat.core.errors import QanatError, RateLimitError
from qanat.core.events import GenerationEvent
from qanat.core.sampling_params import SamplingParams
from qanat.server.caller import Caller
from qanat.server.desk import OpenLease
from qanat.server.errors import UnavailableError
from qanat.server.front_ends.desk_host import DeskHost
from qanat.server.front_ends.line import Line, Reply
from qanat.server.front_ends.shared_desk import SharedDesk
from qanat.server.front_ends.words import Word
from qanat.server.generation import Generation
from qanat.server.usage import KeyUsage

pytestmark = pytest.mark.asyncio
WAIT_S = 60.0
NARROW = Caller("narrow", is_named=True, max_concurrency=2)
PACED = Caller("paced", is_named=True, requests_per_minute=5)
METERED = Caller("metered", is_named=True, tokens_per_minute=20)
FREE = Caller("free", is_named=True)
ADMIN = Caller("boss", is_named=True, is_admin=True)


class Desks:
    """A host and the desks of its front ends, whose numbers begin with 1."""

    def __init__(self, host: DeskHost, desks: list[SharedDesk], lines: list[Line]) -> None:
        self.host = host
        self.desks = desks
        self._lines = lines

    def die(self, number: int) -> None:
        """What the parent does when a front end is gone."""
        self._lines[number - 1].close()
        self.host.forget(number)

    async def usage(self, name: str, at: int = 0) -> KeyUsage:
        report = await self.desks[at].usage(ADMIN)
        return next(one for one in report.keys if one.name == name)


@contextlib.asynccontextmanager
async def sharing(num_front_ends: int = 2) -> AsyncIterator[Desks]:
    host = DeskHost()
    lines: list[Line] = []
    desks = []
    running = []

    async def add(number: int) -> None:
        ours, theirs = socket.socketpair()

        def take(word: Word, reply: Reply) -> None:
            host.take(number, word, reply)

        for line in (await Line.over(ours, take), await Line.over(theirs, lambda word, reply: None)):
            running.append(asyncio.create_task(line.run()))
        lines.append(line)
        desks.append(SharedDesk(line))

    for index in range(num_front_ends):
        await add(index + 1)
    try:
        async with asyncio.timeout(WAIT_S):
            yield Desks(host, desks, lines)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def generation(num_prompt_tokens: int, n: int = 1) -> Generation:
    return Generation("g", [1] * num_prompt_tokens, SamplingParams(n=n))


def event(num_new: int, num_cached: int = 0) -> GenerationEvent:
    return GenerationEvent(
        token_ids=[1] * num_new,
        num_prompt_tokens=4,
        num_cached_tokens=num_cached,
        num_output_tokens=num_new,
    )


async def test_a_bound_on_sequences_holds_however_many_come_at_once() -> None:
    async with sharing(3) as shared:
        release = asyncio.Event()

        async def one(index: int) -> str:
            try:
                async with shared.desks[index % 3].lease(NARROW) as lease:
                    await lease.start([generation(3)])
                    await release.wait()
            except RateLimitError as error:
                assert "max_concurrency of 2" in error.message and error.retry_after_s >= 1
                return "refused"
            return "served"

        calls = [asyncio.create_task(one(index)) for index in range(30)]
        while sum(call.done() for call in calls) < 28:
            await asyncio.sleep(0)
        release.set()
        assert sorted(await asyncio.gather(*calls)) == ["refused"] * 28 + ["served"] * 2
        used = await shared.usage("narrow")
        assert (used.requests, used.running, used.prompt_tokens) == (2, 0, 6)


async def test_requests_and_tokens_of_a_minute_are_those_of_all_front_ends() -> None:
    async with sharing() as shared:
        for index in range(5):
            async with shared.desks[index % 2].lease(PACED, 0):
                pass
        for desk in shared.desks:
            with pytest.raises(RateLimitError, match="5 requests per minute"):
                async with desk.lease(PACED, 0):
                    raise AssertionError("it was let in")
            assert dict(desk.headers(PACED))[b"x-ratelimit-remaining-requests"] == b"0"
        async with shared.desks[0].lease(METERED) as lease:
            await lease.start([generation(4)])
            lease.add(event(17, num_cached=2))
        with pytest.raises(RateLimitError, match="20 tokens per minute"):
            async with shared.desks[1].lease(METERED):
                raise AssertionError("it was let in")
        used = await shared.usage("metered", at=1)
        assert (used.prompt_tokens, used.output_tokens, used.cached_tokens) == (4, 17, 2)
        text = (await shared.desks[1].key_metrics()).decode()
        assert 'qanat:key_generation_tokens_total{key="metered"} 17' in text
        assert shared.desks[0].headers(FREE) == []


async def test_what_was_refused_before_anything_was_done_is_not_charged() -> None:
    async with sharing() as shared:
        for error in (UnavailableError("stopping"), QanatError("a defect")):
            with pytest.raises(QanatError):
                async with shared.desks[0].lease(FREE) as lease:
                    await lease.start([generation(5)])
                    raise error
            shared.desks[0].refuse(FREE, error)
        used = await shared.usage("free")
        assert (used.requests, used.prompt_tokens) == (1, 5)
        assert used.refused == {"unavailable": 1, "internal_error": 1}


async def test_requests_of_a_front_end_that_is_gone_give_back_what_they_held() -> None:
    async with sharing() as shared:
        first, second = shared.desks
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(2):
                lease: OpenLease = await stack.enter_async_context(first.lease(NARROW))
                await lease.start([generation(1)])
            with pytest.raises(RateLimitError):
                await stack.enter_async_context(second.lease(NARROW))
            shared.die(1)
            await stack.enter_async_context(second.lease(NARROW))
            used = await shared.usage("narrow", at=1)
            assert (used.requests, used.running) == (3, 0)
            with pytest.raises(UnavailableError):
                await stack.enter_async_context(first.lease(NARROW))
