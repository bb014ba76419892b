"""Serves HTTP from one process until a signal comes or the engine is dead for good."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

import uvicorn
from starlette.types import Receive, Scope, Send

from qanat.config.engine_config import EngineConfig
from qanat.config.prepare import Prepared
from qanat.core.decision import Decision
from qanat.engine.async_engine import AsyncEngine
from qanat.server.app import App, build_app
from qanat.server.errors import UnavailableError
from qanat.server.garbage import spare_lasting_objects
from qanat.server.http import send_error
from qanat.server.sampling_defaults import read_sampling_defaults
from qanat.server.siblings import Company
from qanat.server.tls import Tls

log = logging.getLogger(__name__)

FAREWELL_S = 5
"""How long the last bytes of answers may take to leave."""
SHORT_FAREWELL_S = 1
"""The same after a second signal."""
DRAIN_CHECK_S = 0.05
KEEP_ALIVE_S = 75
"""Idle connections stay open longer than clients keep them in their pools, so that none is closed under a request."""
DEATH_CHECK_S = 0.5
DEATH_NOTICE_S = 10.0
"""How long a server whose engine has died still answers, so that probes see the reason, before it exits."""

EngineStart = Callable[[Sequence[Decision]], Awaitable[AsyncEngine]]
"""Starts the engine; it is to keep these decisions with its own."""


async def host(
    prepared: Prepared,
    sock: socket.socket,
    tls: Tls | None,
    start: EngineStart,
    on_ready: Callable[[AsyncEngine], None],
    company: Company | None = None,
    *,
    is_early: bool = True,
) -> int:
    """Serves on a socket.

    Args:
        prepared: every setting, settled.
        sock: bound to the server's address.
        tls: certificate and key; None serves in the clear.
        start: starts the engine.
        on_ready: called once requests are served.
        company: other processes that serve the address; None if this is the only one.
        is_early: answers 503 until the engine has started; otherwise takes no connections until then, as others do.

    Returns:
        The exit code: 0 after a signal, 1 if the engine died.

    Raises:
        QanatError: the engine cannot start, or a setting cannot be used.
    """
    options = prepared.wishes
    defaults, decisions = read_sampling_defaults(
        options.generation_config, options.override_generation_config, prepared.config.model_path
    )
    front = _Front()
    server = _Server(_http_config(front, options, tls), front)
    watching = None if tls is None else asyncio.create_task(tls.watch())
    serving = asyncio.create_task(server.serve(sockets=[sock])) if is_early else None
    starting = asyncio.ensure_future(start([*prepared.decisions, *decisions]))
    try:
        if serving is not None:
            await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():  # told to stop while loading
                serving.result()
                return 0
        engine = await starting
        front.app = build_app(engine, options, defaults, company)
        spare_lasting_objects()
        if serving is None:
            serving = asyncio.create_task(server.serve(sockets=[sock]))
        on_ready(engine)
        return await _until_stopped(serving, server, engine, options.shutdown_timeout)
    finally:
        starting.cancel()
        if watching is not None:
            watching.cancel()
        server.should_exit = True
        await asyncio.gather(*([] if serving is None else [serving]), starting, return_exceptions=True)
        if front.app is not None:
            front.app.close()
        if not starting.cancelled() and starting.exception() is None:
            await starting.result().shutdown()


def _http_config(front: _Front, options: EngineConfig, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        front,
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,  # its loggers write as all others do; see qanat.server.logs
        log_level=options.uvicorn_log_level,
        access_log=not options.disable_uvicorn_access_log,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=FAREWELL_S,
        ssl_context_factory=None if tls is None else lambda *_: tls.context,
    )


async def _until_stopped(
    serving: asyncio.Task[None], server: _Server, engine: AsyncEngine, drain_timeout_s: float
) -> int:
    """Waits for the signal to stop, or for the engine's last death; returns the exit code."""
    while engine.health().is_alive and not (server.num_signals or serving.done()):
        await asyncio.wait({serving}, timeout=DEATH_CHECK_S)
    if server.num_signals:
        await _drain(server, engine, drain_timeout_s)
    elif not serving.done():
        log.error("The engine died; the server exits in %.0f s.", DEATH_NOTICE_S)
        notice_end_s = time.monotonic() + DEATH_NOTICE_S
        while time.monotonic() < notice_end_s and not server.num_signals:
            await asyncio.wait({serving}, timeout=DEATH_CHECK_S)
        return 1
    server.should_exit = True
    await serving
    return 0


async def _drain(server: _Server, engine: AsyncEngine, timeout_s: float) -> None:
    """Lets running requests finish, and ends what is left with an error. New ones are refused since the signal."""
    log.info("Stopping; %d requests may go on for up to %.0f s.", engine.num_calls, timeout_s)
    end_s = time.monotonic() + timeout_s
    while engine.num_calls and server.num_signals < 2 and time.monotonic() < end_s:
        await asyncio.sleep(DRAIN_CHECK_S)
    if engine.num_calls:
        log.warning("%d requests are cut off.", engine.num_calls)
        await engine.end_all(UnavailableError("The server was stopped before the request was done."))


class _Front:
    """Answers 503 until the application is there."""

    def __init__(self) -> None:
        self.app: App | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""
        if self.app is not None:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await send_error(send, UnavailableError("The model is being loaded; try again soon."))


class _Server(uvicorn.Server):
    """uvicorn with our meaning of signals, after which the caller goes on.

    The first signal lets running requests finish while the server still answers, the second cuts them off, and a third
    waits for nothing. A server that is still loading ends at the first.

    Attributes:
        num_signals: so many have come.
    """

    def __init__(self, config: uvicorn.Config, front: _Front) -> None:
        super().__init__(config)
        self._front = front
        self.num_signals = 0

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles the signals while the server runs."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        self.num_signals += 1
        if self._front.app is None:
            self.should_exit = True
            return
        self._front.app.begin_stopping()
        if self.num_signals > 1:
            self.config.timeout_graceful_shutdown = SHORT_FAREWELL_S
        self.force_exit = self.num_signals > 2
