"""The router's own routes and what it does with every request, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from qanat.router.assembly import Router
from qanat.router.config import make_config
from qanat.router.model import EndpointState
from qanat.router.options import RouterOptions
from tests.router.routing import COMPLETIONS, Routed, routed, run
from tests.router.tiny_engine import TinyEngine

FAST = {"health_interval_s": 0.02, "health_timeout_s": 60.0}
ADMIN = {"authorization": "Bearer admin-key"}


async def until(is_so: Callable[[], bool]) -> None:
    """Waits; the test's own limit ends it if it never comes."""
    while not is_so():
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def keyed(*words: str, secrets: dict[str, str], **options: Any) -> AsyncIterator[Routed]:
    """As `routed`, with keys from variables."""
    settings: dict[str, Any] = {"port": 0, "access_log": "off", **FAST, **options}
    router = Router(make_config(RouterOptions(**settings), words, secret_of=secrets.get))
    port = await router.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield Routed(router, client, port)
    finally:
        await router.close(1.0)


def test_a_request_goes_through_and_says_where() -> None:
    async def test() -> None:
        async with TinyEngine().served() as engine, routed(engine.url) as place:
            answer = await place.http.post(
                COMPLETIONS, json={"prompt": "x"}, headers={"x-request-id": "mine"}
            )
            assert answer.status_code == 200 and answer.json()["choices"][0]["text"] == "xxx"
            assert answer.headers["x-request-id"] == "mine"
            assert (
                answer.headers["x-qanat-router"]
                == f"endpoint=127.0.0.1:{engine.port}; reason=only-one; retries=0"
            )
            assert engine.calls[-1].header(b"x-request-id") == b"mine"
            other = await place.http.post(
                COMPLETIONS, json={"prompt": "x"}, headers={"x-request-id": "a" * 200}
            )
            assert other.headers["x-request-id"] not in ("mine", "a" * 200)

    run(test())


def test_the_header_can_be_left_out() -> None:
    async def test() -> None:
        async with TinyEngine().served() as engine, routed(engine.url, router_header=False) as place:
            answer = await place.http.post(COMPLETIONS, json={"prompt": "x"})
            assert "x-qanat-router" not in answer.headers and "x-request-id" in answer.headers

    run(test())


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "unknown_path"),
        ("POST", "/sleep", 404, "unknown_path"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("GET", "/router/endpoints", 403, "admin_key_required"),
        ("POST", COMPLETIONS, 503, "no_endpoint"),
    ],
)
def test_errors_have_the_form_that_clients_expect(method: str, path: str, status: int, code: str) -> None:
    async def test() -> None:
        async with keyed(secrets={"A": "admin-key"}, admin_key_env="A") as place:
            answer = await place.http.request(method, path, json={} if method == "POST" else None)
            assert answer.status_code == status
            assert answer.json()["error"]["code"] == code and answer.json()["error"]["message"]
            assert ("retry-after" in answer.headers) == (status == 503)

    run(test())


def test_health_follows_the_engines_and_ready_the_router_too() -> None:
    async def test() -> None:
        async with TinyEngine().served() as engine, routed(engine.url, **FAST) as place:
            answer = await place.http.get("/health")
            assert (answer.status_code, answer.json()["status"]) == (200, "ok")
            (endpoint,) = place.router.pool.members
            engine.health = 503
            await until(lambda: endpoint.state is EndpointState.DOWN)
            for path in ("/health", "/ready", "/healthcheck"):
                answer = await place.http.get(path)
                assert (answer.status_code, answer.json()["status"]) == (503, "no_engine")
                assert answer.headers["retry-after"]
            assert (await place.http.get("/live")).status_code == 200
            engine.health = 200
            await until(lambda: endpoint.state is EndpointState.READY)

    run(test())


def test_a_request_that_arrives_while_it_stops_is_told_and_those_that_run_are_finished() -> None:
    async def test() -> None:
        async with TinyEngine(gate=asyncio.Event()).served() as engine, routed(engine.url) as place:
            running = asyncio.create_task(place.http.post(COMPLETIONS, json={"prompt": "x"}))
            await until(lambda: len(engine.calls) == 1)
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{")
            ready, ready_writer = await asyncio.open_connection("127.0.0.1", place.port)
            ready_writer.write(b"GET /ready HTTP/1.1\r\nhost: x\r\n")
            connections = place.router.front.connections
            await until(lambda: sum(each._reader.is_in_message for each in connections) == 2)
            closing = asyncio.create_task(place.router.close(60))
            await until(lambda: place.router.front.is_draining)
            writer.write(b"}")
            answer = await reader.read()
            assert (
                answer.startswith(b"HTTP/1.1 503 ")
                and b"shutting_down" in answer
                and b"retry-after" in answer
            )
            ready_writer.write(b"\r\n")
            assert (await ready.read()).startswith(b"HTTP/1.1 503 ")
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", place.port)
            assert engine.gate is not None
            engine.gate.set()
            assert (await running).status_code == 200
            assert await closing == 0

    run(test())


def test_models_of_all_engines_are_merged() -> None:
    async def test() -> None:
        async with (
            TinyEngine("a").served() as one,
            TinyEngine("b").served() as other,
            TinyEngine("b").served() as same,
        ):
            async with routed(one.url, other.url, same.url, **FAST) as place:
                await until(lambda: len(place.router.monitor.models.cards) == 3)
                answer = await place.http.get("/v1/models")
                assert [card["id"] for card in answer.json()["data"]] == ["a", "b"]
                assert (await place.http.get("/v1/models/b")).json()["max_model_len"] == 4096
                assert (await place.http.get("/v1/models/c")).status_code == 404
                for _ in range(3):
                    assert (
                        await place.http.post(COMPLETIONS, json={"model": "a", "prompt": "x"})
                    ).status_code == 200
                assert [len(engine.calls) for engine in (one, other, same)] == [3, 0, 0]
                answer = await place.http.post(COMPLETIONS, json={"model": "c", "prompt": "x"})
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")

    run(test())


def test_clients_keys_are_checked_here_and_engines_get_their_own() -> None:
    async def test() -> None:
        secrets = {"C": "first, second", "E": "engine-key"}
        async with TinyEngine().served() as engine:
            async with keyed(engine.url, secrets=secrets, api_key_env="C", engine_key_env="E") as place:
                for key, status in (("first", 200), ("second", 200), ("third", 401), ("", 401)):
                    headers = {"authorization": f"Bearer {key}"} if key else {}
                    answer = await place.http.post(COMPLETIONS, json={"prompt": "x"}, headers=headers)
                    assert answer.status_code == status
                    assert (await place.http.get("/v1/models", headers=headers)).status_code == status
                assert {call.header(b"authorization") for call in engine.calls} == {b"Bearer engine-key"}
                assert (await place.http.get("/health")).status_code == 200
            async with keyed(engine.url, secrets=secrets, api_key_env="C") as place:
                await place.http.post(
                    COMPLETIONS, json={"prompt": "x"}, headers={"authorization": "Bearer first"}
                )
                assert (
                    engine.calls[-1].header(b"authorization") is None
                )  # a key of the router is no engine's business
            async with routed(engine.url) as place:
                await place.http.post(
                    COMPLETIONS, json={"prompt": "x"}, headers={"authorization": "Bearer own"}
                )
                assert engine.calls[-1].header(b"authorization") == b"Bearer own"

    run(test())


def test_endpoints_are_added_changed_and_removed_while_it_runs() -> None:
    async def test() -> None:
        async with TinyEngine().served() as one, TinyEngine().served() as other:
            async with keyed(one.url, secrets={"A": "admin-key"}, admin_key_env="A") as place:
                path = "/router/endpoints"
                answer = await place.http.post(path, json={"url": other.url, "weight": 2}, headers=ADMIN)
                assert (answer.status_code, answer.json()["weight"]) == (201, 2.0)
                listed = (await place.http.get(path, headers=ADMIN)).json()["endpoints"]
                assert [each["name"] for each in listed] == [
                    f"127.0.0.1:{one.port}",
                    f"127.0.0.1:{other.port}",
                ]
                answer = await place.http.post(path, json={"url": other.url, "role": "decode"}, headers=ADMIN)
                assert (answer.status_code, answer.json()["role"]) == (200, "decode")
                answer = await place.http.delete(f"{path}/127.0.0.1:{one.port}", headers=ADMIN)
                assert (answer.status_code, answer.json()["state"]) == (202, "removed")
                assert len(place.router.pool.members) == 1
                for body, code in (
                    ({"url": "x:y"}, 400),
                    ({}, 400),
                    ([], 400),
                    ({"url": "z:1", "name": listed[1]["name"]}, 400),
                ):
                    assert (await place.http.post(path, json=body, headers=ADMIN)).status_code == code
                assert (await place.http.delete(f"{path}/nobody", headers=ADMIN)).status_code == 404
                assert (await place.http.put(path, headers=ADMIN)).status_code == 405
                for headers in ({}, {"authorization": "Bearer wrong"}):
                    assert (await place.http.get(path, headers=headers)).status_code == 403

    run(test())


def test_one_with_open_requests_is_drained_first() -> None:
    async def test() -> None:
        async with TinyEngine(gate=asyncio.Event()).served() as one, TinyEngine().served() as other:
            async with keyed(one.url, secrets={"A": "admin-key"}, admin_key_env="A") as place:
                slow = asyncio.create_task(place.http.post(COMPLETIONS, json={"prompt": "x"}))
                await until(lambda: len(one.calls) == 1)
                await place.http.post("/router/endpoints", json={"url": other.url}, headers=ADMIN)
                name = f"127.0.0.1:{one.port}"
                answer = await place.http.delete(f"/router/endpoints/{name}", headers=ADMIN)
                assert answer.json()["state"] == "draining"
                for _ in range(3):
                    await place.http.post(COMPLETIONS, json={"prompt": "x"})
                assert len(other.calls) == 3
                assert one.gate is not None
                one.gate.set()
                assert (await slow).status_code == 200
                await until(lambda: place.router.pool.find(name) is None)

    run(test())


def test_scripts_for_the_example_proxy_work() -> None:
    async def test() -> None:
        async with keyed(secrets={"A": "admin-key"}, admin_key_env="A") as place:
            body = {"type": "prefill", "instances": ["10.0.0.1:8100", "10.0.0.2:8100"]}
            answer = await place.http.post("/instances/add", json=body, headers=ADMIN)
            assert answer.json()["current_prefill_instances"] == ["10.0.0.1:8100", "10.0.0.2:8100"]
            body = {"type": "prefill", "instances": "10.0.0.1:8100"}
            answer = await place.http.post("/instances/remove", json=body, headers=ADMIN)
            assert answer.json()["current_prefill_instances"] == ["10.0.0.2:8100"]
            for wrong in (
                {"type": "both", "instances": []},
                {"type": "decode", "instances": [1]},
                {"type": "decode"},
            ):
                assert (await place.http.post("/instances/add", json=wrong, headers=ADMIN)).status_code == 400

    run(test())


def test_the_log_has_a_line_for_each_request(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "access.log"
        async with TinyEngine().served() as engine, routed(engine.url, access_log=str(path)) as place:
            headers = {"authorization": "Bearer very-secret", "x-request-id": "one"}
            await place.http.post(COMPLETIONS, json={"model": "tiny", "prompt": "x"}, headers=headers)
            await place.stream(COMPLETIONS, {"prompt": "x"})
            await place.http.get("/nothing")
            await place.http.get("/health")
        text = path.read_text()
        first, second, third = (json.loads(line) for line in text.splitlines())
        assert (first["request_id"], first["status"], first["endpoint"]) == (
            "one",
            200,
            f"127.0.0.1:{engine.port}",
        )
        assert (first["reason"], first["retries"], first["continued"], first["model"]) == (
            "only-one",
            0,
            0,
            "tiny",
        )
        assert first["output_tokens"] == 3 and first["duration_s"] >= 0 and first["bytes"] > 0
        assert second["stream"] is True
        assert (third["status"], third["error"], third["path"]) == (404, "unknown_path", "/nothing")
        assert "very-secret" not in text and first["key"]

    run(test())


def test_the_figures_tell_of_endpoints_and_requests() -> None:
    async def test() -> None:
        async with TinyEngine().served() as engine, routed(engine.url, **FAST) as place:
            await place.http.post(COMPLETIONS, json={"prompt": "x"})
            text = (await place.http.get("/metrics")).text
            name = f"127.0.0.1:{engine.port}"
            assert f'qanat_router_endpoint_state{{endpoint="{name}",role="any",state="ready"}} 1' in text
            assert f'qanat_router_endpoint_running{{endpoint="{name}",role="any"}} 0' in text
            assert (
                f'qanat_router_requests_total{{path="/v1/completions",status="200",endpoint="{name}"}} 1'
                in text
            )
            assert "qanat_router_queue_waiting 0" in text

    run(test())


def test_a_full_queue_is_429_with_retry_after() -> None:
    async def test() -> None:
        async with TinyEngine(gate=asyncio.Event()).served() as engine:
            async with routed(engine.url, max_inflight_per_endpoint=1, max_queue=1, **FAST) as place:
                first = [
                    asyncio.create_task(place.http.post(COMPLETIONS, json={"prompt": "x"})) for _ in range(2)
                ]
                await until(lambda: place.router.admission.num_waiting == 1)
                answer = await place.http.post(COMPLETIONS, json={"prompt": "x"})
                assert (answer.status_code, answer.json()["error"]["code"]) == (429, "queue_full")
                assert int(answer.headers["retry-after"]) >= 1
                assert engine.gate is not None
                engine.gate.set()
                assert [each.status_code for each in await asyncio.gather(*first)] == [200, 200]

    run(test())


def test_a_client_that_leaves_while_it_waits_or_runs_leaves_nothing_behind() -> None:
    async def test() -> None:
        async with TinyEngine(gate=asyncio.Event()).served() as engine:
            async with routed(engine.url, max_inflight_per_endpoint=1, **FAST) as place:
                running = asyncio.create_task(place.http.post(COMPLETIONS, json={"prompt": "x"}))
                await until(lambda: len(engine.calls) == 1)
                waiting = asyncio.create_task(place.http.post(COMPLETIONS, json={"prompt": "x"}))
                await until(lambda: place.router.admission.num_waiting == 1)
                waiting.cancel()
                await until(lambda: place.router.admission.num_waiting == 0)
                running.cancel()
                await until(lambda: engine.num_left == 1)
                (endpoint,) = place.router.pool.members
                await until(lambda: endpoint.num_running == endpoint.num_outstanding_tokens == 0)
                assert place.router.admission.num_inside == 0

    run(test())
