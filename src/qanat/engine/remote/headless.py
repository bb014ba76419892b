"""A process with engine cores for a head on another host: joins it, serves it, and ends with it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

from qanat.config.parallel_settings import ParallelSettings
from qanat.config.resolved import ResolvedConfig
from qanat.core.addresses import address_towards, interface_of, resolved
from qanat.core.errors import ConfigError
from qanat.engine.remote.head_line import HeadLine, HeadLostError
from qanat.engine.remote.hosts import ADDRESS_FLAG
from qanat.engine.remote.identity import HostReport, replica_names, report_of, traits_of
from qanat.engine.remote.messages import JOIN_TIMEOUT_S
from qanat.engine.remote.relay import Relay
from qanat.engine.tokenizer import load_tokenizer

logger = logging.getLogger(__name__)

STOPPED = "was told to stop"


def serve_headless(config: ResolvedConfig, say: Callable[[str], None]) -> int:
    """Serves the head until SIGTERM, SIGINT or the head's end.

    Args:
        config: what the cores are started with; it says which replicas they are and where the head is.
        say: is given a line once this process takes part.

    Returns:
        The exit code: 0 after a signal, 1 if the head is gone.

    Raises:
        ConfigError: the head cannot be talked to, or refuses.
        CheckpointError: the model folder cannot be served.
        EngineDeadError: no head answered in time.
    """
    return asyncio.run(_until_signal(config, say))


async def _until_signal(config: ResolvedConfig, say: Callable[[str], None]) -> int:
    serving = asyncio.create_task(take_part(config, say))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: serving.cancelling() or serving.cancel())
    await asyncio.wait({serving})
    return 0 if serving.cancelled() else serving.result()


async def take_part(config: ResolvedConfig, say: Callable[[str], None]) -> int:
    """Joins the head and serves it; see `serve_headless`. To be cancelled, of which the head is told."""
    _, config = await asyncio.to_thread(load_tokenizer, config)
    traits = await asyncio.to_thread(traits_of, config)
    limit_s = min(JOIN_TIMEOUT_S, config.init_timeout_s)
    place = config.parallel
    where = f"{place.address}:{place.rpc_port}"
    while True:
        report = await asyncio.to_thread(_report, place, traits)
        line = HeadLine(place.address, place.rpc_port)
        try:
            head = await line.join(report, limit_s)
            names = replica_names(place.local_ranks).capitalize()
            say(
                f"{names} of {place.data_parallel_size} joined the head at {where}, {head.name}, as {report.name}."
            )
            await _serve_head(line, config)
        except HeadLostError as lost:
            if not lost.may_return:
                logger.error("The head at %s %s This process ends.", where, lost.reason)
                return 1
            logger.warning(
                "The head at %s %s Joining it again is tried for %.0f s.", where, lost.reason, limit_s
            )
        finally:
            await line.close()


async def _serve_head(line: HeadLine, config: ResolvedConfig) -> None:
    """Until the head is gone, or this task is cancelled, of which the head is told at once."""
    relay = Relay(line, config)
    try:
        await line.serve(relay.handle)
    except asyncio.CancelledError:
        await line.say_farewell(STOPPED)
        raise
    finally:
        await relay.close()


def _report(place: ParallelSettings, traits: dict[str, str]) -> HostReport:
    try:
        address = address_towards(resolved(place.address), place.rpc_port)
    except OSError as error:
        raise ConfigError(
            f"{ADDRESS_FLAG} {place.address}: {error.strerror or error}.", param=ADDRESS_FLAG
        ) from None
    return report_of(tuple(place.local_ranks), address, interface_of(address), traits)
