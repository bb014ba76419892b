"""The real HTTP application over a scripted engine, on a free port, in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import httpx
import openai
import uvicorn

from qanat.config.engine_config import ServerOptions
from qanat.server.app import build_app
from tests.support.scripted_engine import Piece, ScriptedEngine, start_scripted_engine

Result = TypeVar("Result")
WAIT_S = 60.0


class AppServer:
    """A running server; use `serving`."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop, scripted: ScriptedEngine) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.loop = loop
        self.scripted = scripted
        self.http = httpx.Client(base_url=self.url, timeout=WAIT_S)

    def say(self, pieces: Sequence[Piece], tokens_per_step: int = 1) -> None:
        """Sets the script of the requests that follow."""
        self.in_loop(lambda: self.scripted.say(pieces, tokens_per_step))

    def client(self, **options: Any) -> openai.OpenAI:
        """The official client."""
        settings = {"api_key": "none", "max_retries": 0, **options}
        return openai.OpenAI(base_url=f"{self.url}/v1", **settings)

    def in_loop(self, call: Callable[[], Result]) -> Result:
        """Calls a function in the server's loop."""
        future: Future[Result] = Future()
        self.loop.call_soon_threadsafe(lambda: future.set_result(call()))
        return future.result(WAIT_S)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Waits until the condition holds, as seen from the server's loop.

        Raises:
            AssertionError: it does not within WAIT_S.
        """
        end_s = time.monotonic() + WAIT_S
        while not self.in_loop(condition):
            assert time.monotonic() < end_s, "the condition never held"
            time.sleep(0.005)

    def post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """Sends a JSON body."""
        return self.http.post(path, json=body)

    def stream(self, path: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """All events of a complete stream, the end mark checked and left out."""
        with self.http.stream("POST", path, json={**body, "stream": True}) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = [line for line in response.iter_lines() if line]
        assert all(line.startswith("data: ") for line in lines)
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]

    def wait_until_idle(self) -> None:
        """Waits until front end, scheduler and cache hold nothing of any request, and checks the cache's books."""
        scripted = self.scripted

        def is_idle() -> bool:
            stats = scripted.core.stats()
            return not (
                scripted.engine.health().num_pending
                or scripted.core.has_work
                or stats.num_running
                or stats.num_waiting
                or stats.cache_usage
            )

        self.wait_until(is_idle)
        self.in_loop(scripted.cache.check_integrity)


@contextlib.contextmanager
def serving(
    options: ServerOptions | None = None, sampling_defaults: Mapping[str, Any] | None = None, **engine: Any
) -> Iterator[AppServer]:
    """Starts the server and stops it at the end; `engine` goes to `start_scripted_engine`."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    started: Future[tuple[asyncio.AbstractEventLoop, ScriptedEngine, uvicorn.Server]] = Future()

    async def main() -> None:
        try:
            scripted = start_scripted_engine(**engine)
            app = build_app(scripted.engine, options or ServerOptions(), sampling_defaults)
            config = uvicorn.Config(
                app, lifespan="off", log_level="warning", access_log=False, timeout_graceful_shutdown=1
            )
            server = uvicorn.Server(config)
        except BaseException as error:
            started.set_exception(error)
            raise
        task = asyncio.create_task(server.serve(sockets=[sock]))
        while not server.started:
            await asyncio.sleep(0.001)
        started.set_result((asyncio.get_running_loop(), scripted, server))
        await task
        app.close()
        await scripted.engine.shutdown()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    loop, scripted, server = started.result(WAIT_S)
    running = AppServer(sock.getsockname()[1], loop, scripted)
    try:
        yield running
    finally:
        running.http.close()
        running.in_loop(scripted.client.release)
        server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the server did not stop"
