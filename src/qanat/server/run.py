"""Starts engine and HTTP server, in one process or in several, and stops both."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Sequence

import uvloop

from qanat.config.prepare import Prepared
from qanat.core.decision import Decision
from qanat.engine.async_engine import AsyncEngine
from qanat.engine.remote.head import seats_of
from qanat.server.cors import check_cors
from qanat.server.front_ends.supervisor import Supervisor
from qanat.server.hosting import host
from qanat.server.keys import Keys
from qanat.server.keys_file import Rules
from qanat.server.listening import bind_tcp, bind_unix, url_of
from qanat.server.logs import set_up_logs
from qanat.server.tls import Tls

log = logging.getLogger(__name__)


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
        if prepared.config.parallel.num_front_ends > 1:
            supervisor = Supervisor(prepared, sock)
            return runner.run(supervisor.run(lambda decisions: _say_ready(prepared, decisions, address)))
        return runner.run(_serve(prepared, sock, address, tls))


async def _serve(prepared: Prepared, sock: socket.socket, address: str, tls: Tls | None) -> int:
    """All in this process, but for the engine."""
    options = prepared.wishes

    def say_ready(engine: AsyncEngine) -> None:
        _say_ready(prepared, engine.decisions, address)

    max_restarts = options.max_engine_restarts if options.restart_engine else 0
    async with seats_of(prepared.config, max_restarts) as seats:

        async def start(decisions: Sequence[Decision]) -> AsyncEngine:
            return await AsyncEngine.start(prepared.config, decisions, seats=seats)

        return await host(prepared, sock, tls, start, say_ready)


def _say_ready(prepared: Prepared, decisions: Sequence[Decision], address: str) -> None:
    """Decisions of the start, and one line that says where the server is and how to ask it."""
    for decision in decisions[len(prepared.decisions) :]:
        log.info("%s", decision)
    options = prepared.wishes
    name = prepared.config.served_model_names[0]
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
