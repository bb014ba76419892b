"""Starts engine and HTTP server in one process, and stops both."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import time
from collections.abc import Iterator

import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from qanat.config.engine_config import EngineConfig
from qanat.config.prepare import Prepared
from qanat.engine.async_engine import AsyncEngine
from qanat.engine.restarts import RestartBudget
from qanat.server.app import App, build_app
from qanat.server.cors import check_cors
from qanat.server.errors import UnavailableError
from qanat.server.garbage import spare_lasting_objects
from qanat.server.http import send_error
from qanat.server.keys import Keys
from qanat.server.keys_file import Rules
from qanat.server.listening import bind_tcp, bind_unix, url_of
from qanat.server.logs import set_up_logs
from qanat.server.sampling_defaults import read_sampling_defaults
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


def serve(prepared: Prepared) -> int:
    """Serves until SIGTERM or SIGINT. Running requests may go on for --shutdown-timeout; a second signal cuts them off.

    Args:
        prepared: every setting, settled.

    Returns:
        The exit code: 0 after a signal, 1 if the engine died.

    Raises:
        QanatError: the server cannot start; the message says what to change.
    """
    options = prepared.wishes
    set_up_logs(options)
    Keys(options, Rules.of(prepared.config))  # so that wrong ones are told before the model is loaded
    check_cors(options)
    tls = Tls.of(options)
    sock = bind_unix(options.uds) if options.uds else bind_tcp(options.host, options.port)
    address = options.uds or url_of(sock, options.host, "http" if tls is None else "https")
    with contextlib.closing(sock), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(prepared, sock, address, tls))


async def _serve(prepared: Prepared, sock: socket.socket, address: str, tls: Tls | None) -> int:
    options = prepared.wishes
    defaults, decisions = read_sampling_defaults(
        options.generation_config, options.override_generation_config, prepared.config.model_path
    )
    front = _Front()
    server = _Server(
        uvicorn.Config(
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
        ),
        front,
    )
    watching = None if tls is None else asyncio.create_task(tls.watch())
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    restarts = RestartBudget(options.max_engine_restarts if options.restart_engine else 0)
    starting = asyncio.create_task(
        AsyncEngine.start(prepared.config, [*prepared.decisions, *decisions], restarts)
    )
    try:
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():  # told to stop while loading
            serving.result()
            return 0
        engine = starting.result()
        front.app = build_app(engine, options, defaults)
        spare_lasting_objects()
        for decision in engine.decisions[len(prepared.decisions) :]:
            log.info("%s", decision)
        _say_ready(engine, address, options)
        return await _until_stopped(serving, server, engine, options.shutdown_timeout)
    finally:
        starting.cancel()
        if watching is not None:
            watching.cancel()
        server.should_exit = True
        await asyncio.gather(serving, starting, return_exceptions=True)
        if front.app is not None:
            front.app.close()
        if not starting.cancelled() and starting.exception() is None:
            await starting.result().shutdown()


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


def _say_ready(engine: AsyncEngine, address: str, options: EngineConfig) -> None:
    """One line that says where the server is and how to ask it."""
    name = engine.config.served_model_names[0]
    key = " -H 'Authorization: Bearer YOUR_KEY'" if options.api_key or options.api_keys_file else ""
    where = f"--unix-socket {address} http://localhost" if options.uds else address
    body = f'{{"model": "{name}", "prompt": "The future of AI is", "max_tokens": 50, "temperature": 0}}'
    ask = f"curl {where}/v1/completions -H 'Content-Type: application/json'{key} -d '{body}'"
    text = f"Qanat serves {name} at {address}. Ask it: {ask}"
    if options.log_format == "json":
        log.info("%s", text)
    else:
        with contextlib.suppress(OSError):  # a full disk behind it
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
