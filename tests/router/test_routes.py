"""What reaches an engine at all, with which headers, and what is never sent twice."""

from __future__ import annotations

import asyncio

import pytest

from tests.router.routing import CHAT, routed, run
from tests.router.stub_engines import Fault, StubEngine, stubs

BODY = b'{"model":"m","prompt":"x","max_tokens":1}'


async def answered(port: int, method: str, target: str, headers: str = "") -> int:
    """The status of a request that is sent as it stands, without a client's tidying."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}"
    writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(BODY) + BODY)
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


@pytest.mark.parametrize(
    "target",
    [
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/v1/files",
        "/v1/../sleep",
        "/v1/%2e%2e/sleep",
        "/v1/models/../../sleep",
        "/v1/models/%2e%2e/%2e%2e/sleep",
        "/v1/models/..%2fsleep",
        "/v1/models/./x",
        "/v1/models//x",
        "/v1/models/..\\sleep",
        "http://evil/v1/../sleep",
        "/v1/completions/",
        "/sleep",
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_paths_that_may_change_an_engine_are_not_passed_on(method: str, target: str) -> None:
    async def look() -> None:
        engine = StubEngine()
        async with stubs(engine), routed(engine.url) as router:
            assert await answered(router.port, method, target) == 404
            assert not engine.asked

    run(look())


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PURGE", "M-SEARCH", "PUT", "DELETE", "PATCH", "GET"])
def test_methods_that_a_path_does_not_have_are_not_passed_on(method: str) -> None:
    async def look() -> None:
        engine = StubEngine()
        async with stubs(engine), routed(engine.url) as router:
            assert await answered(router.port, method, "/v1/completions") in (400, 404, 405)
            assert not engine.asked

    run(look())


@pytest.mark.parametrize(
    ("path", "num_asked", "status"), [("/v1/responses", 1, 502), ("/invocations", 1, 502), (CHAT, 3, 200)]
)
def test_only_what_leaves_nothing_behind_is_sent_twice(path: str, num_asked: int, status: int) -> None:
    async def look() -> None:
        first, second = StubEngine(), StubEngine()
        async with stubs(first, second), routed(first.url, second.url) as router:
            first.faults, second.faults = [Fault("die")], [Fault("die")]
            body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
            answer = await router.http.post(path, json=body)
            assert answer.status_code == status
            assert len(first.asked) + len(second.asked) == num_asked

    run(look())


def test_a_connection_header_takes_nothing_of_the_routers_away() -> None:
    async def look() -> None:
        engine = StubEngine()
        async with stubs(engine), routed(engine.url) as router:
            headers = (
                "connection: authorization, x-request-id, content-type, x-mine\r\nauthorization: Bearer k\r\n"
                "content-type: application/json\r\nx-mine: 1\r\nx-request-id: id\r\n"
            )
            assert await answered(router.port, "POST", "/v1/completions", headers) == 200
            got = engine.asked[-1].headers
            assert {"authorization", "x-request-id", "content-type"} <= set(got) and "x-mine" not in got

    run(look())
