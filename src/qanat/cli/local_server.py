"""A server of this process's own, on a Unix socket that only this user can reach. For `qanat chat`."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import uvicorn

from qanat.config.prepare import Prepared
from qanat.engine.async_engine import AsyncEngine
from qanat.server.app import App, build_app
from qanat.server.sampling_defaults import read_sampling_defaults

POLL_S = 0.01
"""Pause between looks at whether the server listens."""


@contextlib.contextmanager
def local_server(prepared: Prepared) -> Iterator[str]:
    """Serves while the context is open, from a thread; gives the address for `ChatClient`.

    Raises:
        QanatError: the engine cannot start.
    """
    folder = Path(tempfile.mkdtemp(prefix="qanat-chat-"))  # mkdtemp makes it 0700
    server = _Server(prepared, folder / "http")
    thread = threading.Thread(target=server.run, name="chat-server", daemon=True)
    thread.start()
    try:
        server.ready.result()
        yield f"unix:{folder / 'http'}"
    finally:
        server.stop()
        thread.join()
        shutil.rmtree(folder, ignore_errors=True)


class _Server:
    def __init__(self, prepared: Prepared, socket_path: Path) -> None:
        self.ready: Future[None] = Future()
        self._prepared = prepared
        self._socket_path = socket_path
        self._http: uvicorn.Server | None = None
        self._is_stopped = False

    def run(self) -> None:
        """Runs until `stop`; what goes wrong before it is ready is raised by `ready.result()`."""
        try:
            asyncio.run(self._serve())
        except Exception as error:  # handed to the thread that waits
            if not self.ready.done():
                self.ready.set_exception(error)

    def stop(self) -> None:
        """Ends it soon."""
        self._is_stopped = True
        if self._http is not None:
            self._http.should_exit = True
            self._http.force_exit = True

    async def _serve(self) -> None:
        wishes, config = self._prepared.wishes, self._prepared.config
        defaults, _ = read_sampling_defaults(
            wishes.generation_config, wishes.override_generation_config, config.model_path
        )
        engine = await AsyncEngine.start(config, self._prepared.decisions)
        try:
            app = build_app(engine, wishes, defaults)
            await self._answer(app)
            app.close()
        finally:
            await engine.shutdown()

    async def _answer(self, app: App) -> None:
        """Takes requests until `stop`."""
        config = uvicorn.Config(app, uds=str(self._socket_path), log_level="error", lifespan="off")
        self._http = uvicorn.Server(config)
        self._http.should_exit = self._is_stopped
        serving = asyncio.create_task(self._http.serve())
        while not self._http.started and not serving.done():
            await asyncio.sleep(POLL_S)
        if not self.ready.done():
            self.ready.set_result(None)
        await serving
