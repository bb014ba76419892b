"""Streams that are not looked into: nothing is promised to the client before the engine has said something."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.router.routing import COMPLETIONS, Routed, routed, run
from tests.router.scripted_engine import Said, ScriptedEngine, scripted

EVENT = b"event: message_start\ndata: {}\n\n"


def answers(*said: Said) -> Any:
    left = list(said)

    def answer(fields: Any) -> Said:
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


async def post(router: Routed, path: str) -> tuple[int, bytes]:
    response = await router.http.post(path, json={"stream": True, "input": "x"})
    return response.status_code, response.content


@pytest.mark.parametrize("is_cut", [True, False], ids=["died", "ended without a byte"])
def test_a_stream_without_a_byte_is_tried_elsewhere(is_cut: bool) -> None:
    async def look() -> None:
        engine = ScriptedEngine(answers(Said([], is_cut=is_cut), Said([EVENT])))
        async with scripted(engine), routed(engine.url) as router:
            assert await post(router, "/v1/messages") == (200, EVENT)
            assert len(engine.asked) == 2

    run(look())


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", COMPLETIONS])
def test_a_stream_that_never_has_a_byte_is_no_success(path: str) -> None:
    async def look() -> None:
        engine = ScriptedEngine(answers(Said([])))
        async with scripted(engine), routed(engine.url, max_retries=1) as router:
            status, body = await post(router, path)
            assert status == 502 and b"upstream_broken" in body
            assert len(engine.asked) == (1 if path == "/v1/responses" else 2)
            response = await router.http.post(COMPLETIONS, json={"prompt": "no stream was asked for"})
            assert response.status_code == 502

    run(look())


def test_a_stream_that_dies_after_a_byte_is_cut_and_not_repeated() -> None:
    async def look() -> None:
        engine = ScriptedEngine(answers(Said([EVENT], is_cut=True)))
        async with scripted(engine), routed(engine.url) as router:
            reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
            writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{}")
            content = await reader.read()
            assert b" 200 " in content and EVENT in content and not content.endswith(b"0\r\n\r\n")
            assert len(engine.asked) == 1
            writer.close()

    run(look())


def test_an_error_as_an_empty_stream_keeps_its_status() -> None:
    async def look() -> None:
        engine = ScriptedEngine(answers(Said([], status=418)))
        async with scripted(engine), routed(engine.url) as router:
            assert await post(router, "/v1/messages") == (418, b"")

    run(look())


def test_the_time_for_the_first_event_is_that_for_a_first_byte() -> None:
    """Engines send the head of a stream at once, and the first event once the prompt is computed."""

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"POST"):
            writer.write(
                b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            await asyncio.sleep(0.6)
            writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVENT), EVENT))
        else:
            writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async def look() -> None:
        server = await asyncio.start_server(slow, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, routed(f"http://127.0.0.1:{port}", idle_timeout_s=0.2, max_retries=0) as router:
            assert await post(router, "/v1/messages") == (200, EVENT)

    run(look())
