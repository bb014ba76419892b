"""Several front ends of one real core: each gets its own, and one that is closed leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

import pytest

from qanat.core.errors import EngineDeadError
from qanat.engine.attached_client import AttachedClient, CoreNews
from qanat.engine.messages import (
    AbortRequest,
    AddRequests,
    CallReply,
    CloseFrontEnd,
    FromCore,
    OpenFrontEnd,
    Ready,
    StartProfile,
    StepDone,
)
from qanat.engine.process_client import ProcessClient
from tests.support.step_loop import make_request
from tests.worker.tiny_model import tiny_config

pytestmark = pytest.mark.asyncio
WAIT_S = 120.0


@contextlib.asynccontextmanager
async def core(
    num_attached: int,
) -> AsyncIterator[tuple[ProcessClient, Ready, list[AttachedClient], CoreNews]]:
    """A core, its owner's client, and attached ones with the numbers from 1."""
    owner, news = ProcessClient(), CoreNews()
    attached = [AttachedClient(number + 1, news) for number in range(num_attached)]
    config = tiny_config(max_model_len=4096)
    try:
        async with asyncio.timeout(WAIT_S):
            starts = [asyncio.create_task(client.start(config)) for client in attached]
            ready = await owner.start(config)
            for number in range(num_attached):
                await owner.send(OpenFrontEnd(number + 1))
            news.on_up(str(owner.folder), owner.pid, owner.start_s)
            assert await asyncio.gather(*starts) == [ready] * num_attached
            yield owner, ready, attached, news
    finally:
        for client in attached:
            await client.stop()
        await owner.stop()


async def until_end(client: AttachedClient | ProcessClient, request_id: str) -> list[int]:
    """The tokens of a request; news of any other are a fault."""
    token_ids: list[int] = []
    while True:
        message = await client.receive()
        assert isinstance(message, StepDone)
        for output in message.outputs:
            assert output.request_id == request_id
            token_ids += output.new_token_ids
            if output.finish_reason is not None:
                return token_ids


async def next_of(client: AttachedClient | ProcessClient, kind: type[FromCore]) -> FromCore:
    while True:
        message = await client.receive()
        if isinstance(message, kind):
            return message


async def test_each_gets_the_news_of_its_own_requests_and_all_hear_when_the_core_is_idle() -> None:
    async with core(2) as (owner, _, (first, second), _):
        for client, name in ((first, "a"), (second, "b")):
            await client.send(AddRequests.of([make_request(name, [7, 8, 9], 40, ignore_eos=True)]))
        tokens = await asyncio.gather(until_end(first, "a"), until_end(second, "b"))
        assert len(tokens[0]) == 40 and tokens[0] == tokens[1]
        while True:  # the owner has no requests, and hears that the core has become idle
            step = await owner.receive()
            assert isinstance(step, StepDone) and not step.outputs
            if step.stats.num_running == 0:
                break


async def test_requests_of_one_that_is_gone_leave_the_core_and_the_others_go_on() -> None:
    async with core(2) as (owner, _, (first, second), _):
        for client, name in ((first, "a"), (second, "b")):
            await client.send(AddRequests.of([make_request(name, [7, 8, 9], 3000, ignore_eos=True)]))
            await next_of(client, StepDone)
        while (await next_of(second, StepDone)).stats.num_running < 2:  # type: ignore[union-attr]
            pass
        await first.stop()
        await owner.send(CloseFrontEnd(1))
        while (await next_of(second, StepDone)).stats.num_running > 1:  # type: ignore[union-attr]
            pass
        await second.send(AbortRequest("b"))
        await until_end(second, "b")


async def test_what_a_closed_one_has_sent_is_dropped() -> None:
    async with core(1) as (owner, ready, (first,), news):
        await owner.send(CloseFrontEnd(1))
        await owner.send(OpenFrontEnd(2))
        second = AttachedClient(2, news)
        try:
            assert await second.start(ready.config) == ready  # so the core has closed the first one
            await first.send(AddRequests.of([make_request("late", [7], 3000, ignore_eos=True)]))
            await second.send(AddRequests.of([make_request("b", [7], 40, ignore_eos=True)]))
            assert len(await until_end(second, "b")) == 40
            await second.send(AddRequests.of([make_request("c", [7], 1, ignore_eos=True)]))
            step = await next_of(second, StepDone)
            assert isinstance(step, StepDone) and step.stats.num_running <= 1
        finally:
            await second.stop()


async def test_one_that_comes_late_hears_the_figures_although_no_step_follows() -> None:
    async with core(1) as (owner, ready, (first,), news):
        await first.send(AddRequests.of([make_request("a", [7, 8, 9], 5, ignore_eos=True)]))
        await until_end(first, "a")
        await owner.send(OpenFrontEnd(2))
        late = AttachedClient(2, news)
        try:
            assert await late.start(ready.config) == ready
            figures = await late.receive()
            assert isinstance(figures, StepDone) and not figures.outputs
            assert figures.num_steps >= 5 and figures.stats.step_s > 0
        finally:
            await late.stop()


async def test_the_one_that_asks_for_a_profile_is_answered() -> None:
    async with core(2) as (_, _, (_, second), _):
        await second.send(StartProfile(5))
        reply = await next_of(second, CallReply)
        assert isinstance(reply, CallReply)
        assert (reply.call_id, reply.error_code) == (5, "profiler_state")


async def test_the_death_is_told_by_the_owner_and_the_next_core_serves() -> None:
    async with core(1) as (owner, ready, (first,), news):
        assert owner.pid is not None
        os.kill(owner.pid, signal.SIGKILL)
        with pytest.raises(EngineDeadError):
            await owner.receive()
        news.on_down("It was killed.", 1.0)
        with pytest.raises(EngineDeadError, match="It was killed"):
            while True:
                await first.receive()
        with pytest.raises(EngineDeadError):
            await first.send(AbortRequest("a"))
        replaced, again = ProcessClient(), AttachedClient(1, news)
        try:
            waiting = asyncio.create_task(again.start(ready.config))
            await replaced.start(ready.config)
            await replaced.send(OpenFrontEnd(1))
            news.on_up(str(replaced.folder), replaced.pid, replaced.start_s)
            await waiting
            assert (again.pid, again.start_s) == (replaced.pid, replaced.start_s)
            news.on_down("It died too often.", None)
            with pytest.raises(EngineDeadError, match="too often"):
                await AttachedClient(1, news).start(ready.config)
        finally:
            await again.stop()
            await replaced.stop()
