"""What is refused by its head alone: no long body is read of who may not send it."""

from __future__ import annotations

import asyncio

from tests.router.http.wire import read_message
from tests.router.routing import COMPLETIONS, Routed, routed, run
from tests.router.scripted_engine import DONE, Said, ScriptedEngine, scripted, text
from tests.support.server_process import free_port

LONG = 1 << 20
SECRETS = {"C": "good", "A": "admin"}


async def answered(router: Routed, path: str, key: str, body: bytes = b"") -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\nContent-Length: {LONG}\r\n\r\n"
    writer.write(head.encode() + body)
    try:
        answer = await read_message(reader)
        return answer.status, answer.body
    finally:
        writer.close()


def test_a_long_body_is_refused_before_it_comes() -> None:
    async def look() -> None:
        engine = ScriptedEngine(lambda fields: Said([text("a", "stop"), DONE]))
        async with (
            scripted(engine),
            routed(
                engine.url,
                secrets=SECRETS,
                api_key_env="C",
                admin_key_env="A",
                connector="push",
                port=free_port(),
            ) as router,
        ):
            for path, key, status in (
                (COMPLETIONS, "bad", 401),
                (COMPLETIONS, "admin", 401),
                ("/router/endpoints", "good", 403),
                ("/instances/add", "good", 403),
                ("/v1/load_lora_adapter", "good", 404),
                ("/v1/models", "good", 405),
                ("/health", "good", 413),
                ("/metrics", "good", 413),
                ("/v1/metaserver?token=guess", "good", 404),
            ):
                assert (await answered(router, path, key))[0] == status, path
            body = b'{"prompt":"' + b"x" * (LONG - 13) + b'"}'
            assert (await answered(router, COMPLETIONS, "good", body))[0] == 200
            assert len(engine.asked) == 1

    run(look())
