"""A router as a process: it serves until a signal, drains, and ends at once at a second one."""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
from collections.abc import Callable

from qanat.core.open_files import allow_open_files
from qanat.router.assembly import Router
from qanat.router.config import RouterConfig

MAX_FILES = 1 << 17
"""Every stream has two."""

_LOG = logging.getLogger(__name__)


def serve(config: RouterConfig, say: Callable[[str], None]) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code.

    Args:
        config: every setting.
        say: told one line when the router is there, and one when it stops.

    Raises:
        ConfigError: it cannot start.
    """
    allow_open_files(MAX_FILES)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(config, say))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Of uvloop where it is installed, which serves about twice as many requests a second."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


async def _serve(config: RouterConfig, say: Callable[[str], None]) -> int:
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    router = Router(config)
    try:
        port = await router.start()
        options = config.options
        scheme = "https" if options.ssl_certfile else "http"
        host = f"[{options.host}]" if ":" in options.host else options.host
        num = len(router.pool.members)
        say(f"qanat router: {scheme}://{host}:{port} in front of {num} engine{'' if num == 1 else 's'}")
        await signals.get()
        num_open = router.front.num_running
        say(f"qanat router: stopping; {num_open} requests may go on for up to {options.drain_timeout_s:g} s")
    except BaseException:
        await router.close(0)
        raise
    closing = asyncio.create_task(router.close())
    hurrying = asyncio.create_task(signals.get())
    await asyncio.wait({closing, hurrying}, return_when=asyncio.FIRST_COMPLETED)
    hurrying.cancel()
    if not closing.done():
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        num_cut = await router.close(0)
    else:
        num_cut = closing.result()
    if num_cut:
        _LOG.warning("%d requests were cut off", num_cut)
    return 0
