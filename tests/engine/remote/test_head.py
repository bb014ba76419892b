"""Which seats a process has: its own, and those of hosts that join it."""

from __future__ import annotations

import dataclasses
import resource

import pytest

from qanat.config.parallel_settings import ParallelSettings
from qanat.core.errors import ConfigError
from qanat.engine.process_client import ProcessClient
from qanat.engine.remote.head import MAX_FILES, local_seats, seats_of
from qanat.engine.remote.remote_client import RemoteClient
from tests.support.server_process import free_port
from tests.worker.tiny_model import tiny_config

pytestmark = pytest.mark.asyncio


async def test_replicas_elsewhere_get_their_seats_beside_those_here() -> None:
    parallel = ParallelSettings(data_parallel_size=3, num_local_replicas=1, rpc_port=free_port())
    async with seats_of(dataclasses.replace(tiny_config(), parallel=parallel), 2) as seats:
        assert [(seat.rank, seat.restarts.max_restarts) for seat in seats] == [(0, 2), (1, 2), (2, 2)]
        assert seats[0].make_client is ProcessClient
        assert all(isinstance(seat.make_client(), RemoteClient) for seat in seats[1:])


async def test_a_process_that_serves_its_own_only_does_not_listen() -> None:
    parallel = ParallelSettings(data_parallel_size=2, num_local_replicas=2, address="192.0.2.1")
    async with seats_of(dataclasses.replace(tiny_config(), parallel=parallel), 0) as seats:
        assert [seat.rank for seat in seats] == [0, 1]


async def test_a_head_may_have_many_files_open_as_strangers_hold_some() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        parallel = ParallelSettings(data_parallel_size=2, num_local_replicas=1, rpc_port=free_port())
        async with seats_of(dataclasses.replace(tiny_config(), parallel=parallel), 0):
            now_soft, now_hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limit = MAX_FILES if now_hard == resource.RLIM_INFINITY else min(now_hard, MAX_FILES)
    assert now_soft == limit > 256


@pytest.mark.parametrize("is_headless", [True, False])
async def test_python_alone_does_not_serve_several_hosts(is_headless: bool) -> None:
    parallel = ParallelSettings(data_parallel_size=2, is_headless=is_headless)
    with pytest.raises(ConfigError, match="qanat serve"):
        local_seats(dataclasses.replace(tiny_config(), parallel=parallel), 0)
