"""API-035: every error of the router itself has the form that clients' libraries read."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from tests.router.routing import CHAT, Routed, routed, run
from tests.router.scripted_engine import Said, ScriptedEngine, scripted
from tests.router.test_relay import until
from tests.support.server_process import free_port

HI: Any = [{"role": "user", "content": "hi"}]


async def refused(
    router: Routed, kind: type[openai.APIStatusError], key: str = "good", model: str = "m"
) -> str:
    """The message of the error that the official client raises."""
    base = f"http://127.0.0.1:{router.port}/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=0) as client:
        with pytest.raises(kind) as caught:
            await client.chat.completions.create(model=model, messages=HI)
    assert isinstance(caught.value.body, dict) and {"message", "type", "param", "code"} == set(
        caught.value.body
    )
    return str(caught.value.body["message"])


def test_api_035_the_official_client_shows_the_routers_messages() -> None:
    async def look() -> None:
        engine = ScriptedEngine(lambda fields: Said([], is_cut=True))
        options: dict[str, Any] = {"secrets": {"C": "good"}, "api_key_env": "C", "max_retries": 0}
        async with scripted(engine), routed(engine.url, **options) as router:
            (endpoint,) = router.router.pool.members
            await until(lambda: endpoint.models)
            assert "is wrong" in await refused(router, openai.AuthenticationError, key="bad")
            assert "no-such" in await refused(router, openai.NotFoundError, model="no-such")
            assert "endpoint" in await refused(router, openai.InternalServerError)
            response = await router.http.get("/v1/no-such-path")
            assert response.status_code == 404 and response.json()["error"]["message"]
        async with routed(f"http://127.0.0.1:{free_port()}", max_retries=0) as router:
            assert await refused(router, openai.InternalServerError)

    run(look())


def test_api_035_a_full_queue_of_the_router_is_429() -> None:
    async def look() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                await reader.read()
            writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, routed(url, max_inflight_per_endpoint=1, max_queue=1) as router:
            body = {"model": "m", "messages": HI}
            running = [asyncio.ensure_future(router.http.post(CHAT, json=body)) for _ in range(2)]
            await until(lambda: router.router.admission.num_waiting == 1)
            assert "queue is full" in await refused(router, openai.RateLimitError)
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    run(look())
