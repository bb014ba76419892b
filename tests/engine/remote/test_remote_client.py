"""Real cores behind a head's line: started, asked, killed, replaced and ended from afar, over TCP on this host."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from qanat.config.parallel_settings import ParallelSettings
from qanat.config.resolved import ResolvedConfig
from qanat.core.errors import CheckpointError, EngineDeadError
from qanat.engine.messages import AddRequests, Ready, StepDone
from qanat.engine.process_client import ProcessClient
from qanat.engine.remote.headless import take_part
from qanat.engine.remote.hosts import RemoteHosts
from qanat.engine.remote.identity import traits_of
from qanat.engine.remote.remote_client import RemoteClient
from qanat.engine.tokenizer import load_tokenizer
from tests.support.step_loop import make_request
from tests.worker.tiny_model import tiny_config

pytestmark = pytest.mark.asyncio

WAIT_S = 120.0
CONFIG = load_tokenizer(tiny_config(max_model_len=4096))[1]


@dataclasses.dataclass
class Pair:
    """A head and a host with replicas 1 and 2."""

    hosts: RemoteHosts
    part: asyncio.Task[int]
    said: list[str]
    clients: list[RemoteClient]

    def client(self, replica: int) -> RemoteClient:
        self.clients.append(RemoteClient(self.hosts, replica, WAIT_S))
        return self.clients[-1]


def at_port(config: ResolvedConfig, port: int) -> ResolvedConfig:
    """That of a host with replicas 1 and 2 of 3."""
    parallel = ParallelSettings(
        data_parallel_size=3, num_local_replicas=2, start_rank=1, rpc_port=port, is_headless=True
    )
    return dataclasses.replace(config, parallel=parallel)


@contextlib.asynccontextmanager
async def pair(config_there: ResolvedConfig = CONFIG) -> AsyncIterator[Pair]:
    said: list[str] = []
    hosts = RemoteHosts("127.0.0.1", 0, [1, 2], traits_of(at_port(CONFIG, 0)))
    part = asyncio.create_task(take_part(at_port(config_there, hosts.port), said.append))
    made = Pair(hosts, part, said, [])
    try:
        async with asyncio.timeout(WAIT_S):
            yield made
    finally:
        for client in made.clients:
            await client.stop()
        await hosts.close()
        if not part.cancelling():
            part.cancel()
        await asyncio.gather(part, return_exceptions=True)


async def until_end(client: RemoteClient | ProcessClient, request_id: str) -> list[int]:
    token_ids: list[int] = []
    while True:
        message = await client.receive()
        assert isinstance(message, StepDone)
        for output in message.outputs:
            assert output.request_id == request_id
            token_ids += output.new_token_ids
            if output.finish_reason is not None:
                return token_ids


def is_running(pid: int | None) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


async def test_a_core_elsewhere_answers_as_one_here_does() -> None:
    there = dataclasses.replace(CONFIG, num_threads=2)  # which is each host's own affair
    async with pair(there) as made:
        here, remote = ProcessClient(), made.client(1)
        try:
            own, ready = await asyncio.gather(here.start(CONFIG), remote.start(CONFIG))
            assert isinstance(ready, Ready)
            assert ready.config == dataclasses.replace(CONFIG, scheduler=ready.config.scheduler)
            assert (ready.op_table, ready.memory_plan.num_blocks) == (
                own.op_table,
                own.memory_plan.num_blocks,
            )
            assert remote.pid != here.pid and is_running(remote.pid) and remote.start_s > 0
            for client in (here, remote):
                await client.send(AddRequests.of([make_request("a", [7, 8, 9], 40, ignore_eos=True)]))
            tokens = await asyncio.gather(until_end(here, "a"), until_end(remote, "a"))
            assert len(tokens[0]) == 40 and tokens[0] == tokens[1]
        finally:
            await here.stop()
        (line,) = made.said
        assert line.startswith(
            f"Replicas 1 and 2 of 3 joined the head at 127.0.0.1:{made.hosts.port}, process "
        )


async def test_the_death_of_one_core_is_told_and_the_other_goes_on_and_the_next_serves() -> None:
    async with pair() as made:
        first, second = made.client(1), made.client(2)
        await asyncio.gather(first.start(CONFIG), second.start(CONFIG))
        assert first.pid is not None
        assert "core_process" in await first.ask_for_stacks()
        os.kill(first.pid, signal.SIGSEGV)
        with pytest.raises(
            EngineDeadError, match=r"At process \d+ on .*\(127.0.0.1, lo\): .* was killed by SIGSEGV"
        ):
            while True:
                await first.receive()
        assert "Segmentation fault" in first.last_words()
        with pytest.raises(EngineDeadError, match="has ended"):
            await first.send(AddRequests.of([make_request("late", [7], 4)]))
        await second.send(AddRequests.of([make_request("b", [7], 40, ignore_eos=True)]))
        assert len(await until_end(second, "b")) == 40
        next_one = made.client(1)
        await next_one.start(CONFIG)
        await first.stop()  # the head ends the former one last
        await next_one.send(AddRequests.of([make_request("c", [7], 40, ignore_eos=True)]))
        assert len(await until_end(next_one, "c")) == 40
        assert next_one.pid != first.pid


async def test_stopping_ends_the_core_there() -> None:
    async with pair() as made:
        client = made.client(1)
        await client.start(CONFIG)
        assert is_running(client.pid)
        await client.stop()
        await client.stop()
        await until(lambda: not is_running(client.pid))


async def test_a_host_that_is_stopped_ends_its_cores_and_is_missed_at_once() -> None:
    async with pair() as made:
        client = made.client(1)
        await client.start(CONFIG)
        made.part.cancel()
        with pytest.raises(EngineDeadError, match="Its host, process .*, was told to stop"):
            await client.receive()
        await until(lambda: not is_running(client.pid))


async def test_the_end_of_the_head_ends_cores_and_host() -> None:
    async with pair() as made:
        client = made.client(1)
        await client.start(CONFIG)
        await made.hosts.close()
        assert await made.part == 1
        assert not is_running(client.pid)


async def test_a_core_that_cannot_start_says_why(tmp_path: Path) -> None:
    here = dataclasses.replace(CONFIG, load_format="auto", model_path=str(tmp_path))
    hosts = RemoteHosts("127.0.0.1", 0, [1], {})
    with pytest.raises(CheckpointError):  # the host reads the tokenizer before it joins
        await take_part(at_port(here, hosts.port), print)
    await hosts.close()
    unfit = dataclasses.replace(
        CONFIG, cache=dataclasses.replace(CONFIG.cache, num_blocks_override=1), open_limits=()
    )
    async with pair(unfit) as made:
        with pytest.raises(Exception, match="Replica 1: At process .*: .*--num-gpu-blocks-override"):
            await made.client(1).start(CONFIG)
