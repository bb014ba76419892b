"""Where a head's replicas come from: cores of its own, and cores of hosts that join it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import ConfigError
from qanat.core.open_files import allow_open_files
from qanat.engine.core_client import ClientFactory
from qanat.engine.remote.hosts import RemoteHosts
from qanat.engine.remote.identity import traits_of
from qanat.engine.remote.messages import JOIN_TIMEOUT_S
from qanat.engine.remote.remote_client import RemoteClient
from qanat.engine.replica import Seat
from qanat.engine.restarts import RestartBudget

MAX_FILES = 2**14
"""Those who have not proven the secret hold one each for a while, beside clients and hosts."""


@contextlib.asynccontextmanager
async def seats_of(config: ResolvedConfig, max_restarts: int) -> AsyncIterator[list[Seat]]:
    """One seat for each replica that this process serves, while other hosts may join it.

    Args:
        config: says which replicas run here, and where the others report.
        max_restarts: how often a replica's core is replaced; with 0, a host that was lost may not come back either.

    Raises:
        ConfigError: this process cannot listen where it should.
    """
    parallel = config.parallel
    if not parallel.has_remote_replicas:
        yield local_seats(config, max_restarts)
        return
    remote = [rank for rank in parallel.served_ranks if rank not in parallel.local_ranks]
    traits = await asyncio.to_thread(traits_of, config)
    allow_open_files(MAX_FILES)
    hosts = RemoteHosts(
        parallel.address, parallel.rpc_port, remote, traits, is_return_wished=max_restarts > 0
    )
    limit_s = min(JOIN_TIMEOUT_S, config.init_timeout_s)
    try:
        yield [
            Seat(rank, _clients(hosts, rank, limit_s), RestartBudget(max_restarts))
            if rank in remote
            else Seat(rank, restarts=RestartBudget(max_restarts))
            for rank in parallel.served_ranks
        ]
    finally:
        await hosts.close()


def local_seats(config: ResolvedConfig, max_restarts: int) -> list[Seat]:
    """One seat for each replica, all of which this host runs.

    Raises:
        ConfigError: there are replicas on other hosts too.
    """
    parallel = config.parallel
    if parallel.served_ranks != parallel.local_ranks:
        raise ConfigError(
            "A service on several hosts is started with `qanat serve`, not from Python: leave --headless and "
            "--data-parallel-size-local out.",
            param="--data-parallel-size-local",
        )
    return [Seat(rank, restarts=RestartBudget(max_restarts)) for rank in parallel.local_ranks]


def _clients(hosts: RemoteHosts, rank: int, join_timeout_s: float) -> ClientFactory:
    """The first start waits so long for the host; later ones until it is back, as nobody waits for them."""
    limits_s = itertools.chain([join_timeout_s], itertools.repeat(None))
    return lambda: RemoteClient(hosts, rank, next(limits_s))
