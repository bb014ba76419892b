"""Before the first token: what is passed on as it is, what is tried elsewhere, and how often."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest

from tests.router.routing import CHAT, COMPLETIONS, Routed, routed, run
from tests.router.stub_engines import SCRIPT, Fault, StubEngine, fingerprint, stubs
from tests.support.server_process import free_port

HI = [{"role": "user", "content": "hi"}]
BODY = {"model": "m", "messages": HI, "max_tokens": 5}


def words(*engines: StubEngine) -> list[str]:
    return [f"{engine.url},kind=vllm" for engine in engines]


def test_a_whole_answer_is_passed_on_as_it_is() -> None:
    async def look() -> None:
        engine = StubEngine()
        async with stubs(engine), routed(*words(engine)) as router:
            body = json.dumps(BODY, indent=3).encode()
            headers = {"content-type": "application/json", "x-request-id": "mine", "x-other": "kept"}
            response = await router.http.post(CHAT, content=body, headers=headers)
            answer = response.json()
            assert answer["choices"][0]["message"]["content"] == "".join(SCRIPT[:5])
            assert answer["system_fingerprint"] == fingerprint(BODY)
            assert answer["id"] == "chatcmpl-mine" and response.headers["x-request-id"] == "mine"
            asked = engine.asked[0]
            assert asked.headers["x-other"] == "kept" and asked.headers["content-length"] == str(len(body))

    run(look())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 404, 422, 429, 500])
def test_errors_that_are_the_requests_own_keep_status_and_body(status: int, stream: bool) -> None:
    async def look() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second)) as router:
            first.faults = second.faults = [Fault("status", status=status)]
            response = await router.http.post(CHAT, json={**BODY, "stream": stream})
            assert response.status_code == status
            assert response.json() == {"error": {"message": "stub", "code": status}}
            assert len(first.asked) + len(second.asked) == 1

    run(look())


FAULTS = [
    Fault("status", status=502),
    Fault("status", status=503),
    Fault("status", status=504),
    Fault("empty"),
    Fault("die", 0),
    Fault("end", 0),
    Fault("refuse"),
]


CASES = [(fault, stream) for fault in FAULTS for stream in (False, True) if stream or fault.kind != "end"]


@pytest.mark.parametrize(("fault", "stream"), CASES, ids=str)
def test_what_failed_before_the_first_token_is_tried_elsewhere(fault: Fault, stream: bool) -> None:
    async def look() -> None:
        first, second = StubEngine(), StubEngine()
        is_silent = fault.kind == "refuse"
        limits = {"first_byte_timeout_s": 2.0 if is_silent else 60.0}
        async with stubs(first, second), routed(*words(first, second), **limits) as router:
            for _ in range(1 if is_silent else 3):
                first.asked.clear()
                second.asked.clear()
                first.faults = second.faults = [fault]
                response = await router.http.post(CHAT, json={**BODY, "stream": stream})
                assert response.status_code == 200, response.text
                assert SCRIPT[4] in response.text
                assert len(first.asked) == len(second.asked) == 1
            assert first.num_open + second.num_open == 0

    run(look())


def test_an_engine_that_is_not_there_costs_nothing() -> None:
    async def look() -> None:
        engine = StubEngine()
        dead = f"http://127.0.0.1:{free_port()}"
        async with stubs(engine), routed(dead, *words(engine)) as router:
            for _ in range(4):
                response = await router.http.post(CHAT, json=BODY)
                assert response.status_code == 200

    run(look())


def test_the_last_error_is_the_answer_when_all_engines_fail() -> None:
    async def look() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second)) as router:
            first.faults, second.faults = ([Fault("status", status=503)] for _ in range(2))
            response = await router.http.post(CHAT, json=BODY)
            assert response.status_code == 503
            assert response.json() == {"error": {"message": "stub", "code": 503}}
        async with routed(f"http://127.0.0.1:{free_port()}") as router:
            response = await router.http.post(CHAT, json=BODY)
            assert response.status_code == 503 and response.json()["error"]["code"] in (
                "upstream_unreachable",
                "no_endpoint",
            )

    run(look())


def test_tries_are_bounded() -> None:
    async def look() -> None:
        engines = [StubEngine() for _ in range(6)]
        async with stubs(*engines), routed(*words(*engines), max_retries=2) as router:
            for engine in engines:
                engine.faults = [Fault("status", status=503)]
            response = await router.http.post(CHAT, json=BODY)
            assert response.status_code == 503
            assert sum(len(engine.asked) for engine in engines) == 3

    run(look())


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_the_engine_at_once(stream: bool) -> None:
    async def look() -> None:
        engine = StubEngine(step_s=0.2, prefill_s=0 if stream else 30)
        async with stubs(engine), routed(*words(engine)) as router:
            reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
            body = json.dumps({**BODY, "stream": stream}).encode()
            writer.write(
                b"POST %b HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n%b"
                % (CHAT.encode(), len(body), body)
            )
            if stream:
                await reader.readuntil(b"data: ")
            await until(lambda: engine.num_open == 1)
            writer.transport.abort()
            await until(lambda: engine.num_open == 0)
            assert engine.num_left == 1
            assert figures(router) == (0, 0)

    run(look())


def figures(router: Routed) -> tuple[int, int]:
    members = router.router.pool.members
    return sum(each.num_running for each in members), sum(each.num_outstanding_tokens for each in members)


async def until(condition: Any) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s, "the condition never held"
        await asyncio.sleep(0.002)


def test_load_is_given_back_on_every_kind_of_end() -> None:
    async def look() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(*words(first, second), first_byte_timeout_s=0.3) as router:
            for fault in (*FAULTS, Fault("die", 2), Fault("error", 2), Fault("status", status=400)):
                for stream in (False, True):
                    first.faults = second.faults = [fault]
                    await router.http.post(COMPLETIONS, json={"prompt": "x", "stream": stream})
                    first.faults = second.faults = []
                    assert figures(router) == (0, 0)

    run(look())


def test_a_half_open_endpoint_is_left_after_the_limit() -> None:
    """It accepts connections and never says a word."""

    async def look() -> None:
        engine = StubEngine()
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(64)
            half_open = f"http://127.0.0.1:{silent.getsockname()[1]}"
            async with stubs(engine):
                async with routed(half_open, *words(engine), first_byte_timeout_s=1.0) as router:
                    for _ in range(2):
                        response = await router.http.post(CHAT, json={**BODY, "stream": True})
                        assert response.status_code == 200 and b"[DONE]" in response.content

    run(look())


def test_other_paths_are_passed_on_whole() -> None:
    async def look() -> None:
        engine = StubEngine()
        async with stubs(engine), routed(*words(engine)) as router:
            response = await router.http.post("/v1/embeddings", json={"prompt": "x", "max_tokens": 1})
            assert response.status_code == 200 and engine.asked[0].path == "/v1/embeddings"

    run(look())
