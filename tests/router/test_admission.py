"""The queue before the engines: turns, bounds, deadlines, and clients who leave."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from qanat.core.errors import DeadlineError, QueueFullError
from qanat.router.admission import Admission, LeavingRate, queue_limit_s
from qanat.router.errors import NoEndpointError
from qanat.router.model import Call, Role
from qanat.router.policies import LeastTokens
from qanat.router.pool import Pool
from tests.router.making import Clock, call, endpoint

pytestmark = pytest.mark.asyncio


class Place:
    """A pool, its queue, and requests that last until they are told to end."""

    def __init__(self, num_endpoints: int = 1, max_running: int = 1, **bounds: float) -> None:
        self.pool = Pool(LeastTokens(), max_running)
        for index in range(num_endpoints):
            self.pool.add(endpoint(f"e{index}"))
        self.admission = Admission(self.pool, **bounds)  # type: ignore[arg-type]
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.most = 0

    def start(self, name: str, **changes: object) -> asyncio.Task[None]:
        """A request named after its key and a number."""
        self.ends[name] = asyncio.Event()
        return asyncio.create_task(self.run(name, call({"prompt": "x"}, key_hash=name[0], **changes)))

    async def run(self, name: str, asked: Call) -> None:
        async with self.admission.enter(asked):
            with self.pool.lease(self.pool.choose(asked).endpoint, asked) as lease:
                self.most = max(self.most, lease.endpoint.num_running)
                self.begun.append(name)
                await self.ends[name].wait()

    def is_at_rest(self) -> bool:
        pool = self.pool
        return (
            self.admission.num_waiting == self.admission.num_inside == pool.num_reserved == 0
            and not self.admission._lanes
            and all(each.num_running == each.num_outstanding_tokens == 0 for each in pool.members)
        )


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_who_has_room_does_not_wait() -> None:
    place = Place(num_endpoints=2, max_running=2)
    tasks = [place.start(f"a{number}") for number in range(4)]
    await settled()
    assert len(place.begun) == 4 and place.admission.num_waiting == 0 and place.most == 2
    for event in place.ends.values():
        event.set()
    await asyncio.gather(*tasks)
    assert place.is_at_rest()


async def test_keys_have_turns() -> None:
    place = Place()
    tasks = [place.start(name) for name in ("a0", "a1", "a2", "a3", "b0", "c0")]
    for _ in range(6):
        await settled()
        place.ends[place.begun[-1]].set()
    await asyncio.gather(*tasks)
    assert place.begun == ["a0", "a1", "b0", "c0", "a2", "a3"]
    assert place.is_at_rest() and place.most == 1


async def test_lower_priorities_go_first() -> None:
    place = Place()
    tasks = [place.start("a0"), place.start("a1", priority=3), place.start("b0", priority=-1)]
    for _ in range(3):
        await settled()
        place.ends[place.begun[-1]].set()
    await asyncio.gather(*tasks)
    assert place.begun == ["a0", "b0", "a1"]


async def test_a_full_queue_refuses_and_says_when_to_come_again() -> None:
    place = Place(max_waiting=2)
    tasks = [place.start(f"a{number}") for number in range(3)]
    await settled()
    with pytest.raises(QueueFullError, match="2 requests wait") as refused:
        await place.start("a9")
    assert refused.value.status == 429 and 1 <= refused.value.retry_after_s <= 300
    other = place.start("b0")  # a key with fewer waiting takes the place of the greedy one's last
    await settled()
    with pytest.raises(QueueFullError):
        await tasks[2]
    for event in place.ends.values():
        event.set()
    await asyncio.gather(tasks[0], tasks[1], other)
    assert place.is_at_rest()


async def test_who_waits_too_long_is_told() -> None:
    place = Place(max_wait_s=0.02)
    first = place.start("a0")
    await settled()
    with pytest.raises(DeadlineError, match="waited 0.02 s"):
        await place.start("a1")
    patient = call({"prompt": "x", "timeout": {"queue": 0.01}})
    with pytest.raises(DeadlineError, match="waited 0.01 s"):
        await place.run("a2", patient)
    place.ends["a0"].set()
    await first
    assert place.is_at_rest()


async def test_who_leaves_while_waiting_leaves_nothing_behind() -> None:
    place = Place()
    tasks = [place.start(name) for name in ("a0", "a1", "b0")]
    await settled()
    tasks[1].cancel()
    await settled()
    place.ends["a0"].set()
    await settled()
    assert place.begun == ["a0", "b0"]
    place.ends["b0"].set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert place.is_at_rest()


async def test_a_place_given_to_one_who_is_leaving_goes_to_the_next() -> None:
    place = Place()
    tasks = [place.start(name) for name in ("a0", "b0", "c0")]
    await settled()
    place.ends["a0"].set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # a0 has ended and b0 has its place, but has not run yet
    tasks[1].cancel()
    await settled()
    assert "c0" in place.begun
    place.ends["c0"].set()
    place.ends["b0"].set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert place.is_at_rest()


async def test_who_waits_is_told_when_nobody_is_left_to_wait_for() -> None:
    place = Place()
    first, second = place.start("a0"), place.start("a1")
    await settled()
    (engine,) = place.pool.members
    place.pool.set_health(engine, False, "it is gone", is_silent=True)
    with pytest.raises(NoEndpointError) as refused:
        await second
    assert refused.value.status == 503 and refused.value.retry_after_s >= 1
    place.ends["a0"].set()
    await first
    assert place.is_at_rest()


async def test_a_new_endpoint_takes_from_the_queue_at_once() -> None:
    place = Place()
    tasks = [place.start(name) for name in ("a0", "a1")]
    await settled()
    place.pool.add(endpoint("late"))
    await settled()
    assert place.begun == ["a0", "a1"]
    for event in place.ends.values():
        event.set()
    await asyncio.gather(*tasks)


async def test_a_model_whose_engines_are_full_holds_up_no_other() -> None:
    place = Place(num_endpoints=0)
    place.pool.add(endpoint("x", models=frozenset({"x"})))
    place.pool.add(endpoint("y", models=frozenset({"y"})))
    tasks = [place.start(f"a{number}", model="x") for number in range(3)]
    await settled()
    tasks.append(place.start("a9", model="y"))
    await settled()
    assert place.begun == ["a0", "a9"]
    for event in place.ends.values():
        event.set()
    await asyncio.gather(*tasks)
    assert place.is_at_rest()


async def test_a_pair_has_room_where_both_halves_have() -> None:
    pool = Pool(LeastTokens(), 2)
    for name, role in (("p", Role.PREFILL), ("d", Role.DECODE)):
        pool.add(endpoint(name, role))
    asked = call({"prompt": "x"})
    assert pool.num_room(asked) == 2
    with pool.lease(pool.choose(asked, Role.DECODE).endpoint, asked):
        assert pool.num_room(asked) == 1
    pool.remove(pool.get("p"))
    assert pool.num_room(asked) == 0 and not pool.has_hope(asked)


@pytest.mark.parametrize("seed", range(20))
async def test_any_coming_and_going_ends_at_rest_and_within_bounds(seed: int) -> None:
    rng = random.Random(seed)
    place = Place(num_endpoints=2, max_running=3, max_waiting=10)
    tasks: dict[str, asyncio.Task[None]] = {}
    for number in range(200):
        name = f"{rng.choice('abc')}{number}"
        tasks[name] = place.start(name, priority=rng.choice([0, 0, 1]))
        for other in rng.sample(sorted(tasks), min(len(tasks), 2)):
            if rng.random() < 0.3:
                tasks[other].cancel()
            else:
                place.ends[other].set()
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        assert place.admission.num_waiting <= 10
    for event in place.ends.values():
        event.set()
    for task in tasks.values():
        with contextlib.suppress(QueueFullError, asyncio.CancelledError):
            await task
    assert place.is_at_rest()
    assert place.most <= 3


async def test_the_rate_is_that_of_the_last_seconds() -> None:
    clock = Clock()
    rate = LeavingRate(clock)
    assert rate.per_s() == 0
    for _ in range(10):
        clock.now_s += 1
        for _ in range(5):
            rate.left()
    assert 4 <= rate.per_s() <= 6
    clock.now_s += 5
    assert 2 <= rate.per_s() <= 3
    clock.now_s += 100
    assert rate.per_s() == 0


async def test_when_to_come_again_follows_from_how_fast_requests_end() -> None:
    clock = Clock()
    admission = Admission(Pool(LeastTokens(), 1), clock=clock)
    for _ in range(10):
        clock.now_s += 1
        for _ in range(4):
            admission._rate.left()
    admission.num_waiting = 39
    assert admission.retry_after_s() == 10
    clock.now_s += 1000
    assert admission.retry_after_s() == 30  # nothing ends: nobody knows


@pytest.mark.parametrize("timeout", [None, 5, {"queue": "1"}, {"queue": True}, {"queue": -1}, {}])
async def test_odd_timeouts_are_left_to_the_engine(timeout: object) -> None:
    assert queue_limit_s(call({"timeout": timeout})) is None
