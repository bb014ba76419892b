"""Waits that end from outside, and budgets that no storm of failures can exceed."""

from __future__ import annotations

import asyncio

import pytest

from qanat.router.disaggregated.metaserver import Metaserver, OtherPushError, UnknownRequestError
from qanat.router.http.errors import UpstreamBroken
from qanat.router.lost_guard import LostGuard
from qanat.router.policies import LeastTokens
from qanat.router.pool import Pool
from qanat.router.retry import RetryBudget
from tests.router.making import call, endpoint
from tests.router.routing import CHAT, routed, run
from tests.router.stub_engines import SCRIPT, StubEngine, stubs
from tests.router.test_continuation_by_text import joined
from tests.router.test_relay import until


def test_a_budget_is_spent_and_comes_back_with_requests() -> None:
    budget = RetryBudget(share=0.5, reserve=2)
    assert [budget.withdraw() for _ in range(3)] == [True, True, False]
    budget.deposit()
    assert not budget.withdraw()
    budget.deposit()
    assert budget.withdraw() and not budget.withdraw()
    for _ in range(100):
        budget.deposit()
    assert [budget.withdraw() for _ in range(3)] == [True, True, False]


def test_a_wait_ends_when_its_engine_is_given_up() -> None:
    async def look() -> None:
        pool = Pool(LeastTokens())
        engine = endpoint()
        pool.add(engine)

        async def wait() -> None:
            with pool.lease(engine, call({"prompt": "x"})) as lease, LostGuard(lease):
                await asyncio.sleep(3600)

        waiting = asyncio.create_task(wait())
        await until(lambda: engine.num_running == 1)
        pool.set_health(engine, False, "it hangs", is_silent=True)
        with pytest.raises(UpstreamBroken, match="it hangs"):
            await waiting
        assert engine.num_running == 0 and not waiting.cancelled()

        waiting = asyncio.create_task(wait())
        await until(lambda: engine.num_running == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert engine.num_running == 0

    run(look())


def test_a_stream_moves_when_its_engine_is_removed() -> None:
    async def look() -> None:
        first, second = StubEngine(step_s=0.02), StubEngine(step_s=0.02)
        async with stubs(first, second), routed(first.url, second.url) as router:
            asking = asyncio.create_task(
                router.stream(CHAT, {"messages": [{"role": "user", "content": "x"}]})
            )
            await until(lambda: first.num_open + second.num_open == 1)
            serving = next(each for each in router.router.pool.members if each.num_running)
            await asyncio.sleep(0.05)
            router.router.pool.remove(serving)
            assert joined(await asking)[0] == "".join(SCRIPT)
            assert first.num_open + second.num_open == 0

    run(look())


def test_a_decoder_that_asks_again_gets_the_same_push() -> None:
    async def look() -> None:
        metaserver = Metaserver()
        pushes: list[str] = []
        may_end = asyncio.Event()

        async def push(params: dict[str, object]) -> None:
            pushes.append(str(params["request_id"]))
            await may_end.wait()

        metaserver.expect("secret", ["r-0", "r"], push)
        asking = call({"request_id": "r"}, target="/v1/metaserver?token=secret")
        tasks = [asyncio.create_task(metaserver(asking, _Silent())) for _ in range(3)]
        await until(lambda: len(pushes) == 1)
        elsewhere = call({"request_id": "r", "remote_host": "other"}, target=asking.target)
        with pytest.raises(OtherPushError):
            await metaserver(elsewhere, _Silent())
        may_end.set()
        await asyncio.gather(*tasks)
        assert pushes == ["r"]
        metaserver.forget("secret")
        assert metaserver.num_waiting == 0
        with pytest.raises(UnknownRequestError):
            await metaserver(asking, _Silent())

    run(look())


def test_a_request_that_ends_takes_its_push_along() -> None:
    async def look() -> None:
        metaserver = Metaserver()
        ends: list[str] = []

        async def push(params: dict[str, object]) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ends.append("ended")

        metaserver.expect("secret", ["r"], push)
        asking = asyncio.create_task(
            metaserver(call({"request_id": "r"}, target="/v1/metaserver?token=secret"), _Silent())
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        metaserver.forget("secret")
        with pytest.raises(UnknownRequestError):
            await asking
        assert ends == ["ended"]

    run(look())


class _Silent:
    """A client that wants to hear nothing."""

    is_started = is_ended = is_gone = False
    num_body_bytes = 0
    status = 0

    def set_listener(self, listener: object) -> None: ...

    def flush(self) -> None: ...

    def start(self, status: int, headers: object) -> None: ...

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def end(self) -> None: ...

    def abort(self) -> None: ...
