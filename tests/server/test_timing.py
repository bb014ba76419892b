"""`timing` in every answer, and `timeout` as a request's own limit."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

import pytest

from qanat.core.events import GenerationEvent
from qanat.core.outputs import RequestTiming
from qanat.server.timing import Stopwatch
from tests.server.test_errors import refuse, still_serves
from tests.support.app_server import AppServer

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BODIES = {COMPLETIONS: {"prompt": "x"}, CHAT: {"messages": [{"role": "user", "content": "x"}]}}
PATHS = pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
FIELDS = {"queue_s", "prefill_s", "decode_s", "first_token_s", "total_s", "cached_tokens"}


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
def test_an_end_at_a_stop_string_is_timed_too(server: AppServer, path: str) -> None:
    server.say(["a", "b", "STOP", "c", "d"])
    body = {**BODIES[path], "stop": "STOP"}
    timing = server.post(path, body).json()["timing"]
    check(timing)
    assert timing["decode_s"] > 0


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
        error = refuse(future.result(30), 408, "timeout")
    assert error["type"] == "timeout_error" and error["code"] == "deadline_exceeded"
    assert "deadline passed" in error["message"]
    server.wait_until_idle()
    still_serves(server)


def test_a_stream_that_takes_longer_ends_with_the_error(server: AppServer) -> None:
    body = {"prompt": "x", "max_tokens": 2000, "ignore_eos": True, "stream": True, "timeout": 0.5}
    core, client = server.scripted.core, server.scripted.client

    async def hold_after_three_steps() -> None:
        last_step = core.num_steps + 3
        while core.num_steps < last_step:
            await asyncio.sleep(0)
        client.hold()

    asyncio.run_coroutine_threadsafe(hold_after_three_steps(), server.loop)
    with server.http.stream("POST", COMPLETIONS, json=body) as response:
        assert response.status_code == 200
        lines = (line for line in response.iter_lines() if line)
        next(lines)
        server.wait_until(lambda: not client._may_step.is_set())
        held_s = server.in_loop(server.loop.time)
        server.wait_until(lambda: server.loop.time() > held_s + 0.6)
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
