"""What every road through the application has in common: headers of errors, and the end of the server."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest
from starlette.types import Message

from qanat.config.engine_config import ServerOptions
from qanat.core.errors import (
    AuthenticationError,
    DeadlineError,
    EngineRestartingError,
    InvalidRequestError,
    RateLimitError,
)
from qanat.server.app import App, build_app, error_response
from qanat.server.errors import BodyTooLargeError
from qanat.server.http import send_error
from tests.server.test_errors import CHAT, COMPLETIONS, HI, refuse
from tests.support.app_server import AppServer
from tests.support.scripted_engine import ScriptedEngine, start_scripted_engine

BODIES: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "x", "max_tokens": 1},
    CHAT: {"messages": HI, "max_tokens": 1},
}


@pytest.mark.parametrize("is_stream", [True, False])
def test_the_official_client_does_not_send_a_request_again_whose_deadline_passed(
    server: AppServer, is_stream: bool
) -> None:
    sent: list[httpx.Request] = []
    with httpx.Client(event_hooks={"request": [sent.append]}, timeout=60) as http:
        client = server.client(max_retries=2, http_client=http)
        with pytest.raises(openai.APIStatusError) as caught:
            client.completions.create(
                model="scripted", prompt="x", stream=is_stream, extra_body={"timeout": 1e-6}
            )
    assert (caught.value.status_code, caught.value.code) == (408, "deadline_exceeded")
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(sent) == 1


def test_errors_that_may_pass_do_not_forbid_another_try(server: AppServer) -> None:
    assert "x-should-retry" not in server.post(COMPLETIONS, {"prompt": "", "max_tokens": 1}).headers
    assert "x-should-retry" not in server.http.get("/v1/nothing").headers


def test_errors_of_every_road_have_the_same_headers() -> None:
    errors = [
        EngineRestartingError("x", retry_after_s=7),
        RateLimitError("x"),
        DeadlineError("x"),
        AuthenticationError("x"),
        BodyTooLargeError("x"),
        InvalidRequestError("x"),
    ]
    for error in errors:
        sent: list[Message] = []

        async def send(message: Message, sent: list[Message] = sent) -> None:
            sent.append(message)

        asyncio.run(send_error(send, error))
        response = error_response(error)
        assert sorted(response.raw_headers) == sorted(sent[0]["headers"])
        assert (response.status_code, response.body) == (sent[0]["status"], sent[1]["body"])
    assert error_response(errors[0]).headers["retry-after"] == "7"


def test_a_server_that_begins_to_stop_takes_nothing_new_from_that_moment_on() -> None:
    async def main() -> None:
        scripted = start_scripted_engine()
        app = build_app(scripted.engine, ServerOptions())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
            scripted.client.hold()
            running = asyncio.create_task(http.post(COMPLETIONS, json=BODIES[COMPLETIONS]))
            async with asyncio.timeout(60):
                while not scripted.engine.num_calls:
                    await asyncio.sleep(0)
            app.begin_stopping()
            await _refuses(http, app, scripted)
            scripted.client.release()
            assert (await running).status_code == 200
        app.close()
        await scripted.engine.shutdown()

    asyncio.run(main())


async def _refuses(http: httpx.AsyncClient, app: App, scripted: ScriptedEngine) -> None:
    assert (await http.get("/ready")).status_code == 503
    for path, body in BODIES.items():
        response = await http.post(path, json=body)
        assert refuse(response, 503)["code"] == "unavailable"
        assert "another" in response.json()["error"]["message"]
        assert int(response.headers["retry-after"]) >= 1
    assert scripted.engine.num_calls == 1
