"""Disconnects, ids, keys, health, metrics: the server around the answers. Names carry the trial cases covered."""

from __future__ import annotations

import concurrent.futures
import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from qanat.config.engine_config import ServerOptions
from tests.support.app_server import AppServer, serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ENDLESS = {"prompt": "Story:", "max_tokens": 90_000, "ignore_eos": True}
"""Runs for seconds, so that whoever looks for it while it runs finds it."""
OPEN_PATHS = ("/health", "/ping", "/ready", "/version", "/metrics")


@pytest.fixture(scope="module")
def server() -> Iterator[AppServer]:
    with serving(max_model_len=100_000) as running:
        yield running
        running.wait_until_idle()


def open_request(server: AppServer, body: dict[str, Any], path: str = COMPLETIONS) -> socket.socket:
    """A raw connection that has sent its request."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    payload = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
    return connection


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("n", [1, 3])
def test_api_064_a_client_that_leaves_ends_its_request(server: AppServer, is_stream: bool, n: int) -> None:
    connection = open_request(server, {**ENDLESS, "stream": is_stream, "n": n})
    if is_stream:
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    else:
        server.wait_until(lambda: server.scripted.core.stats().num_running == n)
    connection.close()
    server.wait_until_idle()


def test_api_064_a_client_that_leaves_while_queued(server: AppServer) -> None:
    server.in_loop(server.scripted.client.hold)
    connections = [open_request(server, {**ENDLESS, "stream": True}) for _ in range(5)]
    server.wait_until(lambda: server.scripted.engine.health().num_pending == 5)
    for connection in connections:
        connection.close()
    server.wait_until(lambda: server.scripted.engine.health().num_pending == 0)
    server.in_loop(server.scripted.client.release)
    server.wait_until_idle()


def test_api_064_a_client_that_leaves_during_a_long_prefill() -> None:
    with serving(max_num_batched_tokens=16) as server:
        num_steps = server.in_loop(lambda: server.scripted.core.num_steps)
        connection = open_request(server, {"prompt": "x" * 2000, "max_tokens": 40, "stream": True})
        server.wait_until(lambda: server.scripted.core.num_steps > num_steps)
        connection.close()
        server.wait_until_idle()


def test_api_064_many_clients_that_leave(server: AppServer) -> None:
    server.say(["word "] * 3000)

    def leave(_: int) -> None:
        connection = open_request(server, {**ENDLESS, "stream": True})
        connection.recv(1000)
        connection.close()

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        list(pool.map(leave, range(200)))
    server.wait_until_idle()
    server.say(["fine"])
    assert server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 1}).json()["choices"][0]["text"] == "fine"


def test_leaving_while_several_prompts_run_ends_all(server: AppServer) -> None:
    connection = open_request(server, {**ENDLESS, "prompt": ["a", "b", "c"], "stream": True})
    connection.recv(1000)
    connection.close()
    server.wait_until_idle()


def test_a_slow_reader_holds_nobody_else_up(server: AppServer) -> None:
    server.say(["x" * 1000] * 3000)
    connection = open_request(server, {**ENDLESS, "stream": True})
    connection.recv(100)  # and then no more
    server.say(["fine"])
    assert server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 1}).json()["choices"][0]["text"] == "fine"
    connection.close()
    server.wait_until_idle()


def test_api_037_two_requests_with_the_same_id(server: AppServer) -> None:
    server.say(["a"] * 500)
    headers = {"X-Request-Id": "same-id"}
    bodies = [{"prompt": "x", "max_tokens": 400}, {"prompt": "y", "max_tokens": 300}]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(
            pool.map(lambda body: server.http.post(COMPLETIONS, json=body, headers=headers), bodies)
        )
    assert [len(answer.json()["choices"][0]["text"]) for answer in answers] == [400, 300]
    assert {answer.json()["id"] for answer in answers} == {"cmpl-same-id"}
    assert {answer.headers["x-request-id"] for answer in answers} == {"same-id"}


def test_api_037_aborting_one_leaves_its_namesake_alone(server: AppServer) -> None:
    server.say(["a"] * 3000)
    first = open_request(server, {**ENDLESS, "stream": True, "request_id": "twin"})
    first.recv(1000)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = {"prompt": "y", "max_tokens": 1000, "request_id": "twin"}
        second = pool.submit(server.post, COMPLETIONS, body)
        first.close()
        assert len(second.result().json()["choices"][0]["text"]) == 1000
    server.wait_until_idle()


@pytest.mark.parametrize("odd", ["", "x" * 10_000, "a b", "a\tb", "<script>"])
def test_api_037_odd_ids_are_replaced(server: AppServer, odd: str) -> None:
    response = server.http.get("/version", headers={"X-Request-Id": odd})
    assert response.status_code == 200
    assert re.fullmatch(r"[0-9a-f]{32}", response.headers["x-request-id"])


def test_keys_guard_everything_that_is_not_listed_as_open() -> None:
    with serving(ServerOptions(api_key=("first-key", "second-key"))) as server:
        body = {"prompt": "x", "max_tokens": 1}
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "first-key"}):
            response = server.http.post(COMPLETIONS, json=body, headers=headers)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert response.headers["www-authenticate"] == "Bearer"
        for key in ("first-key", "second-key"):
            headers = {"Authorization": f"Bearer {key}"}
            assert server.http.post(COMPLETIONS, json=body, headers=headers).status_code == 200
        for path in ("/v1/models", "/v1/models/scripted", "/nothing", "/v1/nothing"):
            assert server.http.get(path).status_code == 401
        for path in OPEN_PATHS:
            assert server.http.get(path).status_code == 200
        with server.client(api_key="second-key") as client:
            assert client.models.list().data[0].id == "scripted"


def test_models_are_listed_with_their_window(server: AppServer) -> None:
    body = server.http.get("/v1/models").json()
    assert [(card["id"], card["max_model_len"]) for card in body["data"]] == [
        ("scripted", 100_000),
        ("scripted-alias", 100_000),
    ]
    assert body["object"] == "list"


def test_ops_009_health_turns_when_work_is_pending_and_no_step_ends() -> None:
    with serving(step_timeout_s=0.2) as server:
        assert server.http.get("/health").status_code == 200
        time.sleep(0.3)
        assert server.http.get("/health").status_code == 200  # idle is healthy, however long
        server.in_loop(server.scripted.client.hold)
        connection = open_request(server, {"prompt": "Story:", "max_tokens": 2000, "stream": True})
        server.wait_until(lambda: not server.scripted.engine.health().is_healthy)
        response = server.http.get("/health")
        assert response.status_code == 503
        assert response.json()["status"] == "stalled"
        assert server.http.post("/ping").status_code == 503
        server.in_loop(server.scripted.client.release)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.close()
        server.wait_until_idle()
        assert server.http.get("/health").status_code == 200


def test_metrics_carry_vllms_names(server: AppServer) -> None:
    before = read_metrics(server)
    server.say(["a"] * 10)
    server.post(COMPLETIONS, {"prompt": "abc", "max_tokens": 5})
    after = read_metrics(server)

    def gain(name: str, **labels: str) -> float:
        key = (name, tuple(sorted({"engine": "0", "model_name": "scripted", **labels}.items())))
        return after[key] - before[key]

    assert gain("vllm:prompt_tokens_total") == 3
    assert gain("vllm:generation_tokens_total") == 5
    assert gain("vllm:request_success_total", finished_reason="length") == 1
    assert gain("vllm:request_success_total", finished_reason="stop") == 0
    assert gain("vllm:time_to_first_token_seconds_count") == 1
    assert gain("vllm:inter_token_latency_seconds_count") == 4
    assert gain("vllm:e2e_request_latency_seconds_count") == 1
    assert gain("vllm:request_prompt_tokens_sum") == 3
    assert gain("vllm:request_prompt_tokens_bucket", le="5.0") == 1
    assert gain("vllm:request_prompt_tokens_bucket", le="2.0") == 0
    assert gain("vllm:request_prompt_tokens_bucket", le="+Inf") == 1
    names = {name for name, _ in after}
    for name in (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
        "vllm:cache_config_info",
        "vllm:request_queue_time_seconds_count",
        "vllm:request_prefill_time_seconds_count",
        "vllm:request_decode_time_seconds_count",
        "vllm:request_inference_time_seconds_count",
        "vllm:request_time_per_output_token_seconds_count",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
    ):
        assert name in names


def test_metrics_count_forms(server: AppServer) -> None:
    before = read_metrics(server)
    server.say(["ab"])
    body = {"prompt": "abc", "max_tokens": 5, "structured_outputs": {"regex": "abc?|counted"}}
    for _ in range(2):
        assert server.post(COMPLETIONS, body).json()["choices"][0]["text"] == "ab"
    refused = server.post(COMPLETIONS, {**body, "structured_outputs": {"regex": "counted("}})
    assert refused.status_code == 400
    after = read_metrics(server)
    labels = (("engine", "0"), ("model_name", "scripted"))
    gains = {
        name: after[key] - before[key]
        for name in ("compiles", "cache_hits", "refusals", "overruns", "restarts")
        if (key := (f"qanat:structured_output_{name}_total", labels))
    }
    assert gains == {"compiles": 2, "cache_hits": 1, "refusals": 1, "overruns": 0, "restarts": 0}


def test_metrics_show_requests_while_they_run(server: AppServer) -> None:
    connection = open_request(server, {**ENDLESS, "stream": True})
    connection.recv(1000)
    labels = (("engine", "0"), ("model_name", "scripted"))
    assert read_metrics(server)[("vllm:num_requests_running", labels)] == 1
    connection.close()
    server.wait_until_idle()
    assert read_metrics(server)[("vllm:num_requests_running", labels)] == 0


def read_metrics(server: AppServer) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    from prometheus_client.parser import text_string_to_metric_families

    response = server.http.get("/metrics")
    assert response.status_code == 200
    families = text_string_to_metric_families(response.text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
