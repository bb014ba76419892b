"""Limits of keys, through the door: what a client with a key of the keys file sees."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from qanat.config.engine_config import ServerOptions
from qanat.server.errors import UnavailableError
from tests.server.test_errors import refuse
from tests.support.app_server import AppServer, serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "x", "max_tokens": 2},
    CHAT: {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2},
}
PATHS = pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
KEYS = """
keys:
- {name: free, key: free-key}
- {name: narrow, key: narrow-key, max_concurrency: 1}
- {name: metered, key: metered-1-key, tokens_per_minute: 20}
- {name: metered-too, key: metered-2-key, tokens_per_minute: 20}
- {name: sdk, key: sdk-key, tokens_per_minute: 20}
- {name: paced, key: paced-key, requests_per_minute: 2}
- {name: once-1, key: once-1-key, requests_per_minute: 1}
- {name: once-2, key: once-2-key, requests_per_minute: 1}
- {name: once-3, key: once-3-key, requests_per_minute: 1, max_concurrency: 1}
- {name: one-form, key: one-form-key, requests_per_minute: 2}
- {name: alias-only, key: alias-key, models: [scripted-alias]}
- {name: late, key: late-key, priority: 5}
- {name: boss, key: boss-key, admin: true}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    path = tmp_path_factory.mktemp("keys") / "keys.yaml"
    path.write_text(KEYS)
    path.chmod(0o600)
    options = ServerOptions(api_keys_file=str(path), api_key=("flag-key",))
    with serving(options, policy="priority", max_model_len=10_000) as running:
        yield running
        running.wait_until_idle()


def ask(server: AppServer, key: str, path: str = COMPLETIONS, **fields: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}-key"}
    return server.http.post(path, json={**BODIES[path], **fields}, headers=headers)


def test_every_path_asks_for_a_key(server: AppServer) -> None:
    for path in (COMPLETIONS, CHAT, "/tokenize"):
        refuse(server.http.post(path, json={}), 401)
    refuse(ask(server, "nobodys"), 401)
    assert ask(server, "free").status_code == ask(server, "flag").status_code == 200


def test_a_key_with_admin_may_take_actions_and_others_may_not(server: AppServer) -> None:
    for key, status, param in (("free", 403, None), ("boss", 404, "request_id")):
        headers = {"Authorization": f"Bearer {key}-key"}
        refuse(server.http.post("/abort", json={"request_id": "none"}, headers=headers), status, param)


@PATHS
@pytest.mark.parametrize("is_stream", [True, False])
def test_requests_over_max_concurrency_get_429(server: AppServer, path: str, is_stream: bool) -> None:
    server.in_loop(server.scripted.client.hold)
    with ThreadPoolExecutor() as pool:
        first: Future[httpx.Response] = pool.submit(ask, server, "narrow", path)
        server.wait_until(lambda: server.scripted.engine.health().num_pending == 1)
        response = ask(server, "narrow", path, stream=is_stream)
        error = refuse(response, 429)
        assert error["code"] == "rate_limit_exceeded" and error["type"] == "rate_limit_error"
        assert "max_concurrency of 1" in error["message"] and int(response.headers["retry-after"]) >= 1
        others: Future[httpx.Response] = pool.submit(ask, server, "free", path)
        server.wait_until(lambda: server.scripted.engine.health().num_pending == 2)
        server.in_loop(server.scripted.client.release)
        assert first.result(60).status_code == others.result(60).status_code == 200
    server.wait_until_idle()
    assert ask(server, "narrow", path).status_code == 200


@pytest.mark.parametrize(("path", "key"), [(COMPLETIONS, "metered-1"), (CHAT, "metered-2")])
def test_tokens_per_minute_count_prompt_and_output(server: AppServer, path: str, key: str) -> None:
    server.say(["a"] * 300)
    answer = ask(server, key, path, max_tokens=200)
    assert answer.status_code == 200 and answer.headers["x-ratelimit-limit-tokens"] == "20"
    response = ask(server, key, path)  # 180 tokens too many are paid back in nine minutes and more
    assert "20 tokens per minute" in refuse(response, 429)["message"]
    wait_s = int(response.headers["retry-after"])
    assert 60 < wait_s and f"in {wait_s} s" in response.json()["error"]["message"]
    assert wait_s <= (answer.json()["usage"]["total_tokens"] + 1) * 3
    assert response.headers["x-ratelimit-remaining-tokens"] == "0"


def test_requests_per_minute(server: AppServer) -> None:
    answers = [ask(server, "paced") for _ in range(4)]
    assert [answer.status_code for answer in answers[:2]] == [200, 200]
    assert answers[0].headers["x-ratelimit-remaining-requests"] == "1"
    refuse(answers[-1], 429)  # 30 s a request; a machine that takes as long for two proves nothing here
    assert int(answers[-1].headers["retry-after"]) <= 30


@pytest.mark.parametrize(("path", "key"), [(COMPLETIONS, "once-1"), (CHAT, "once-2")])
def test_bounds_hold_while_a_prompt_is_being_read(server: AppServer, path: str, key: str) -> None:
    tokenizer = server.scripted.engine.tokenizer
    read, is_reading, may_go_on = tokenizer.encode, threading.Event(), threading.Event()
    num_reads = 0

    def slowly(text: str) -> list[int]:
        nonlocal num_reads
        num_reads += "many words" in text
        is_reading.set()
        assert may_go_on.wait(60)
        return read(text)

    text = "many words " * 300
    body: dict[str, Any] = (
        {"prompt": text} if path == COMPLETIONS else {"messages": [{"role": "user", "content": text}]}
    )
    server.in_loop(lambda: setattr(tokenizer, "encode", slowly))
    try:
        with ThreadPoolExecutor() as pool:
            first = pool.submit(ask, server, key, path, **body)
            assert is_reading.wait(60)
            refuse(ask(server, key, path, **body), 429)
            assert num_reads == 1
            may_go_on.set()
            assert first.result(60).status_code == 200
    finally:
        server.in_loop(lambda: delattr(tokenizer, "encode"))


def test_tokenizing_counts_as_a_request(server: AppServer) -> None:
    headers = {"Authorization": "Bearer once-3-key"}
    for path, field in (("/tokenize", "prompt"), ("/detokenize", "tokens")):
        refuse(server.http.post(path, json={field: 5}, headers=headers), 400, field)  # free of charge
    assert server.http.post("/tokenize", json={"prompt": "x"}, headers=headers).status_code == 200
    for path, body in (("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [1]})):
        answer = server.http.post(path, json=body, headers=headers)
        assert "1 requests per minute" in refuse(answer, 429)["message"]
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    refuse(ask(server, "once-3"), 429)


def test_a_form_that_was_compiled_counts_and_a_known_one_that_is_refused_does_not(server: AppServer) -> None:
    form: dict[str, Any] = {"structured_outputs": {"regex": "(never closed"}}
    refuse(ask(server, "one-form", **form), 400, "structured_outputs")  # compiled, and refused
    assert server.in_loop(lambda: server.scripted.engine.stats().compiler.num_compiles) == 1
    for _ in range(3):
        refuse(ask(server, "one-form", **form), 400, "structured_outputs")
    assert ask(server, "one-form").status_code == 200
    refuse(ask(server, "one-form"), 429)


def test_a_server_that_stops_charges_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("keys: [{name: a, key: a-key, requests_per_minute: 1, tokens_per_minute: 5}]")
    with serving(ServerOptions(api_keys_file=str(path))) as server:
        engine = server.scripted.engine
        server.in_loop(lambda: engine.refuse_new(UnavailableError("The server is being stopped.")))
        for _ in range(3):
            refuse(ask(server, "a"), 503)
        server.in_loop(lambda: setattr(engine, "_refusal", None))
        assert ask(server, "a").status_code == 200
        server.wait_until_idle()


def test_the_official_client_raises_its_rate_limit_error(server: AppServer) -> None:
    with server.client(api_key="sdk-key") as client:
        with pytest.raises(openai.RateLimitError) as caught:
            for _ in range(2):
                client.completions.create(model="scripted", prompt="x" * 30, max_tokens=1)
    assert caught.value.code == "rate_limit_exceeded"


def test_a_key_sees_only_its_models(server: AppServer) -> None:
    headers = {"Authorization": "Bearer alias-key"}
    cards = server.http.get("/v1/models", headers=headers).json()["data"]
    assert [card["id"] for card in cards] == ["scripted-alias"]
    assert server.http.get("/v1/models/scripted-alias", headers=headers).status_code == 200
    plan = server.http.get("/v1/plan", headers=headers).json()
    assert plan["settings"]["served_model_names"] == ["scripted-alias"]
    refuse(server.http.get("/v1/models/scripted", headers=headers), 404, "model")
    for path in BODIES:
        error = refuse(ask(server, "alias", path, model="scripted"), 404, "model")
        assert error["code"] == "model_not_found" and "served: scripted-alias" in error["message"]
        for body in ({}, {"model": "scripted-alias"}):
            assert ask(server, "alias", path, **body).json()["model"] == "scripted-alias"
    tokenized = server.http.post("/tokenize", json={"prompt": "x", "model": "scripted"}, headers=headers)
    refuse(tokenized, 404, "model")
    assert (
        len(server.http.get("/v1/models", headers={"Authorization": "Bearer free-key"}).json()["data"]) == 2
    )


@PATHS
def test_a_key_gives_its_requests_their_priority(server: AppServer, path: str) -> None:
    for key in ("free", "flag"):
        error = refuse(ask(server, key, path, priority=-1), 400, "priority")
        assert "must not be below 0" in error["message"]
    seen: list[tuple[str, int]] = []
    add = server.scripted.core.add

    def watch(request: Any) -> None:
        seen.append((request.owner, request.priority))
        add(request)

    server.in_loop(lambda: setattr(server.scripted.core, "add", watch))
    for key, priority in (("late", 0), ("late", 2), ("free", 0), ("boss", -3), ("flag", 3)):
        assert ask(server, key, path, priority=priority).status_code == 200
    server.in_loop(lambda: setattr(server.scripted.core, "add", add))
    assert seen == [("late", 5), ("late", 7), ("free", 0), ("boss", -3), ("api-key-1", 3)]


def test_a_changed_file_holds_for_the_next_requests(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("keys: [{name: a, key: old-key}]")
    with serving(ServerOptions(api_keys_file=str(path))) as server:
        assert ask(server, "old").status_code == 200
        path.write_text("keys: [{name: a, key: new-key, requests_per_minute: 1}]")

        async def until_new() -> None:
            while (await asyncio.to_thread(ask, server, "new")).status_code != 200:
                await asyncio.sleep(0.05)

        asyncio.run(asyncio.wait_for(until_new(), 60))
        refuse(ask(server, "old"), 401)
        refuse(ask(server, "new"), 429)
        server.wait_until_idle()


def post_all(server: AppServer, pool: ThreadPoolExecutor, count: int) -> list[Future[httpx.Response]]:
    """Requests of one token each, all of them in the scheduler's hands when this returns."""
    before = server.in_loop(lambda: server.scripted.engine.health().num_pending)
    body = {"prompt": "x", "max_tokens": 1}
    futures = [pool.submit(server.post, COMPLETIONS, body) for _ in range(count)]
    server.wait_until(lambda: server.scripted.engine.health().num_pending == before + count)
    return futures


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("is_measured", [True, False])
def test_a_full_queue_says_when_to_come_again(is_stream: bool, is_measured: bool) -> None:
    with serving(max_num_seqs=1, max_waiting_requests=3) as server, ThreadPoolExecutor(8) as pool:

        def remember_a_queue() -> None:  # one that moved every 10 s
            now_s, pace = time.monotonic(), server.scripted.core._scheduler._drain_pace
            for seconds_ago in range(300, 0, -10):
                pace.observe(now_s - seconds_ago, 1, True)
            pace.pause()

        server.in_loop(server.scripted.client.hold)
        if is_measured:
            server.in_loop(remember_a_queue)
        futures = post_all(server, pool, 4)
        late = pool.submit(server.post, COMPLETIONS, {"prompt": "x", "max_tokens": 1, "stream": is_stream})
        server.wait_until(lambda: bool(server.scripted.core._ended))
        server.in_loop(server.scripted.client.release)
        response = late.result(60)
        error = refuse(response, 429)
        assert error["code"] == "queue_full" and "3 requests are waiting" in error["message"]
        # One row is free at that moment, so the fourth in the queue waits for three others.
        assert int(response.headers["retry-after"]) in ((40, 41) if is_measured else (1,))
        assert all(future.result(60).status_code == 200 for future in futures)
        server.wait_until_idle()


def test_a_request_that_would_wait_too_long_is_refused_at_once() -> None:
    with serving(max_num_seqs=1, max_queue_wait_s=1e-9) as server, ThreadPoolExecutor(32) as pool:
        server.in_loop(server.scripted.client.hold)
        futures = post_all(server, pool, 24)
        num_steps = server.in_loop(lambda: server.scripted.core.num_steps)
        server.in_loop(lambda: server.scripted.client.release(20))
        server.wait_until(lambda: server.scripted.core.num_steps == num_steps + 20)
        late = pool.submit(server.post, COMPLETIONS, {"prompt": "x", "max_tokens": 1})
        server.wait_until(lambda: bool(server.scripted.core._ended))
        server.in_loop(server.scripted.client.release)
        response = late.result(60)
        error = refuse(response, 429)
        assert error["code"] == "queue_full" and "(--max-queue-wait-s)" in error["message"]
        assert "4 requests with 4 tokens are waiting" in error["message"]
        assert int(response.headers["retry-after"]) >= 1
        assert all(future.result(60).status_code == 200 for future in futures)
        server.wait_until_idle()


@PATHS
@pytest.mark.parametrize("part", ["first_token", "total"])
def test_nothing_is_computed_for_a_request_that_cannot_be_in_time(path: str, part: str) -> None:
    with serving() as server:
        scheduler = server.scripted.core._scheduler

        def slow_down() -> None:  # as if each token had taken 10 s so far
            for _ in range(5):
                scheduler.observe_step(200, 2000.0)

        server.in_loop(slow_down)
        num_steps = server.in_loop(lambda: server.scripted.core.num_steps)
        error = refuse(
            server.post(path, {**BODIES[path], "timeout": {part: 5}}),
            408,
            {"first_token": "timeout.first_token", "total": "timeout"}[part],
        )
        assert error["code"] == "deadline_exceeded" and "Nothing was computed for it" in error["message"]
        assert server.in_loop(lambda: server.scripted.core.num_steps) == num_steps
        assert server.post(path, {**BODIES[path], "timeout": {"queue": 5}}).status_code == 200
        server.wait_until_idle()


def test_keys_take_turns_whatever_one_of_them_has_sent(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("keys: [{name: flood, key: flood-key}, {name: light, key: light-key}]")
    with (
        serving(ServerOptions(api_keys_file=str(path)), max_num_seqs=1) as server,
        ThreadPoolExecutor(32) as pool,
    ):
        server.in_loop(server.scripted.client.hold)
        flood = [pool.submit(ask, server, "flood", max_tokens=1) for _ in range(20)]
        server.wait_until(lambda: server.scripted.engine.health().num_pending == 20)
        light = pool.submit(ask, server, "light", max_tokens=1)
        server.wait_until(lambda: server.scripted.engine.health().num_pending == 21)
        server.in_loop(lambda: server.scripted.client.release(4))
        assert light.result(60).status_code == 200
        assert sum(future.done() for future in flood) <= 4
        server.in_loop(server.scripted.client.release)
        assert all(future.result(60).status_code == 200 for future in flood)
        server.wait_until_idle()
