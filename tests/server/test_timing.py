"""`timing` in every answer, and `timeout` as a request's own limit."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from typing import Any

import pytest

from qanat.config.engine_config import ServerOptions
from qanat.core.events import GenerationEvent
from qanat.core.outputs import RequestTiming
from qanat.core.sampling_params import SamplingParams
from qanat.server.timing import Stopwatch
from tests.server.test_errors import refuse, still_serves
from tests.support.app_server import AppServer, serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BODIES = {COMPLETIONS: {"prompt": "x"}, CHAT: {"messages": [{"role": "user", "content": "x"}]}}
PATHS = pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
FIELDS = {"queue_s", "prefill_s", "decode_s", "first_token_s", "total_s", "cached_tokens", "prefix"}


def check(timing: dict[str, Any]) -> None:
    assert set(timing) == FIELDS
    assert 0 <= timing["first_token_s"] <= timing["total_s"]
    assert 0 <= timing["decode_s"] <= timing["total_s"]
    assert timing["cached_tokens"] == 0


@PATHS
@pytest.mark.parametrize("n", [1, 3])
def test_a_whole_answer_says_where_its_time_went(server: AppServer, path: str, n: int) -> None:
    server.say(["a", "b", "c"])
    timing = server.post(path, {**BODIES[path], "n": n}).json()["timing"]
    check(timing)
    assert timing["queue_s"] >= 0 and timing["prefill_s"] >= 0
    assert timing["queue_s"] + timing["prefill_s"] <= timing["total_s"]


@PATHS
@pytest.mark.parametrize("has_usage", [True, False])
def test_a_stream_says_it_once_where_the_last_choice_ends(
    server: AppServer, path: str, has_usage: bool
) -> None:
    server.say(["a", "b", "c"])
    body = {**BODIES[path], "n": 2, "stream_options": {"include_usage": has_usage}}
    chunks = server.stream(path, body)
    timed = [chunk for chunk in chunks if "timing" in chunk]
    assert timed == [chunk for chunk in chunks if chunk["choices"]][-1:]
    assert timed[0]["choices"][0]["finish_reason"] == "stop"
    check(timed[0]["timing"])


@PATHS
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("is_stream", [True, False])
def test_an_end_at_a_stop_string_is_timed_in_full(
    server: AppServer, path: str, n: int, is_stream: bool
) -> None:
    server.say(["a", "b", "STOP", "c", "d"])
    body = {**BODIES[path], "stop": "STOP", "n": n}
    if is_stream:
        (timing,) = [chunk["timing"] for chunk in server.stream(path, body) if "timing" in chunk]
    else:
        timing = server.post(path, body).json()["timing"]
    check(timing)
    assert timing["decode_s"] > 0
    assert timing["queue_s"] + timing["prefill_s"] + timing["decode_s"] <= timing["total_s"] + 1e-5


def test_ends_at_stop_strings_are_counted_among_the_times(server: AppServer) -> None:
    names = ("queue", "prefill", "decode", "inference")

    def counts() -> list[int]:
        histograms = server.in_loop(server.scripted.engine.stats).histograms
        return [sum(histograms[f"request_{name}_time_seconds"].counts) for name in names]

    server.say(["a", "STOP", "c", "d"])
    before = counts()
    for path in BODIES:
        server.post(path, {**BODIES[path], "stop": "STOP"})
    assert counts() == [count + 2 for count in before]


def test_the_first_token_comes_with_queue_and_prefill(server: AppServer) -> None:
    server.say(["a", "b", "c"])
    events: list[GenerationEvent] = []

    async def collect() -> None:
        async for event in server.scripted.engine.generate([65, 66], SamplingParams(max_tokens=3)):
            events.append(event)

    asyncio.run_coroutine_threadsafe(collect(), server.loop).result(60)
    timed = [event.timing for event in events if event.timing is not None]
    assert events[0].timing is timed[0] and events[-1].timing is timed[-1] and len(timed) == 2
    assert (timed[0].queue_s, timed[0].prefill_s) == (timed[1].queue_s, timed[1].prefill_s)
    assert timed[0].decode_s == 0


def test_a_prompt_that_is_only_scored_has_no_first_token(server: AppServer) -> None:
    body = {"prompt": "abc", "max_tokens": 0, "echo": True, "logprobs": 0}
    timing = server.post(COMPLETIONS, body).json()["timing"]
    assert set(timing) == FIELDS
    assert timing["first_token_s"] is None and timing["decode_s"] == 0


def test_the_longest_of_several_choices_counts() -> None:
    watch = Stopwatch()
    for queue_s, prefill_s, decode_s in ((1, 9, 2), (5, 3, 4)):
        timing = RequestTiming(queue_s, prefill_s, decode_s)
        watch.add(GenerationEvent(token_ids=[1], timing=timing))
    read = watch.read(7)
    assert (read.queue_s, read.prefill_s, read.decode_s, read.cached_tokens) == (5, 9, 4, 7)


@PATHS
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_request_that_waits_beyond_its_timeout_gets_408(
    server: AppServer, path: str, is_stream: bool
) -> None:
    server.in_loop(server.scripted.client.hold)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        body = {**BODIES[path], "timeout": 1e-6, "stream": is_stream}
        future = pool.submit(server.post, path, body)
        server.wait_until(lambda: server.scripted.engine.health().num_pending == 1)
        server.in_loop(server.scripted.client.release)
        error = refuse(future.result(60), 408, "timeout")
    assert error["type"] == "timeout_error" and error["code"] == "deadline_exceeded"
    assert "deadline passed" in error["message"]
    server.wait_until_idle()
    still_serves(server)


def test_a_stream_that_takes_longer_ends_with_the_error() -> None:
    """It stops after three steps, and goes on when its time is over."""
    body = {"prompt": "x", "max_tokens": 2000, "ignore_eos": True, "stream": True, "timeout": 600}
    with serving() as server:
        client, scheduler = server.scripted.client, server.scripted.core._scheduler
        server.in_loop(lambda: client.release(num_steps=3))
        with server.http.stream("POST", COMPLETIONS, json=body) as response:
            assert response.status_code == 200
            lines = (line for line in response.iter_lines() if line)
            next(lines)
            server.wait_until(lambda: not client._may_step.is_set())
            server.in_loop(lambda: setattr(scheduler, "_clock", lambda: time.monotonic() + 601))
            server.in_loop(client.release)
            last = list(lines)[-1]
        assert '"code":"deadline_exceeded"' in last and '"param":"timeout"' in last
        server.wait_until_idle()


def test_enough_time_changes_nothing(server: AppServer) -> None:
    server.say(["a"])
    answer = server.post(COMPLETIONS, {"prompt": "x", "timeout": 600})
    assert answer.status_code == 200 and answer.json()["choices"][0]["text"] == "a"


@PATHS
@pytest.mark.parametrize("timeout", [0, -1, "1", True, [1]], ids=str)
def test_odd_timeouts_are_refused(server: AppServer, path: str, timeout: Any) -> None:
    refuse(server.post(path, {**BODIES[path], "timeout": timeout}), 400, "timeout")


@PATHS
@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize(
    ("timeout", "param"),
    [
        ({"queue": 1e-6}, "timeout.queue"),
        ({"first_token": 1e-6, "queue": 60}, "timeout.first_token"),
        ({"total": 1e-6, "first_token": 60}, "timeout"),
    ],
)
def test_each_part_of_a_timeout_ends_a_request_and_is_named(
    server: AppServer, path: str, is_stream: bool, timeout: dict[str, float], param: str
) -> None:
    server.wait_until_idle()
    num_steps = server.in_loop(lambda: server.scripted.core.num_steps)
    error = refuse(server.post(path, {**BODIES[path], "timeout": timeout, "stream": is_stream}), 408, param)
    assert error["code"] == "deadline_exceeded"
    server.wait_until_idle()
    assert server.in_loop(lambda: server.scripted.core.num_steps) == num_steps  # nothing was computed


@PATHS
def test_a_timeout_in_parts_lets_through_what_is_in_time(server: AppServer, path: str) -> None:
    timeout = {"queue": 60, "first_token": 61.5, "total": 1e6}
    assert server.post(path, {**BODIES[path], "timeout": timeout}).status_code == 200
    assert server.post(path, {**BODIES[path], "timeout": {}}).status_code == 200


@PATHS
@pytest.mark.parametrize(
    ("timeout", "param"),
    [
        (0, "timeout"),
        (-1.5, "timeout"),
        ("10", "timeout"),
        ([], "timeout"),
        ({"queue": 0}, "timeout.queue"),
        ({"first_token": -1}, "timeout.first_token"),
        ({"total": "x"}, "timeout.total"),
        ({"decode": 5}, "timeout.decode"),
    ],
)
def test_timeouts_that_mean_nothing_are_refused(
    server: AppServer, path: str, timeout: Any, param: str
) -> None:
    refuse(server.post(path, {**BODIES[path], "timeout": timeout}), 400, param)


def test_a_default_timeout_holds_for_requests_without_their_own() -> None:
    with serving(ServerOptions(request_timeout_s=0.001)) as server:
        server.in_loop(server.scripted.client.hold)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            bodies = [{}, {"timeout": {"queue": 60}}, {"timeout": 60}, {"timeout": {"total": 60}}]
            futures = [pool.submit(server.post, COMPLETIONS, {"prompt": "x", **body}) for body in bodies]
            server.wait_until(lambda: server.scripted.engine.health().num_pending == 4)
            time.sleep(0.01)
            server.in_loop(server.scripted.client.release)
            assert [future.result(60).status_code for future in futures] == [408, 408, 200, 200]
        server.wait_until_idle()
