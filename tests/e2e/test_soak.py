"""Many requests of mixed shapes with random aborts: nothing leaks, neither blocks nor states nor memory."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.soak import server_arguments, soak
from tests.e2e.test_processes import gauge, holds_within
from tests.support.server_process import ServerProcess

NUM_REQUESTS = 2000
NUM_CLIENTS = 24
MAX_GROWTH = 0.02
IDLE_S = 60.0


@dataclass
class Soak:
    """Sends requests from several clients and samples the memory of both processes as it goes."""

    server: ServerProcess
    random: random.Random
    num_sent: int = 0
    num_aborted: int = 0
    endings: dict[str, int] = field(default_factory=dict)
    samples: list[tuple[int, int]] = field(default_factory=list)

    async def run(self) -> None:
        limits = httpx.Limits(max_connections=NUM_CLIENTS)
        async with httpx.AsyncClient(base_url=self.server.base_url, timeout=120, limits=limits) as client:
            await asyncio.gather(*(self._client(client) for _ in range(NUM_CLIENTS)))

    async def _client(self, client: httpx.AsyncClient) -> None:
        while self.num_sent < NUM_REQUESTS:
            self.num_sent += 1
            if self.num_sent % 20 == 0:
                self.samples.append((self.num_sent, self._memory_bytes()))
            await self._request(client, self._body())

    async def _request(self, client: httpx.AsyncClient, body: dict[str, Any]) -> None:
        num_events_until_abort = self.random.choice([None, None, 1, 3, 10])
        async with client.stream("POST", "/v1/completions", json=body) as response:
            assert response.status_code == 200, await response.aread()
            num_events = 0
            async for line in response.aiter_lines():
                num_events += bool(line)
                if num_events == num_events_until_abort:
                    self.num_aborted += 1
                    return
                for ending in ("stop", "length"):
                    if f'"finish_reason":"{ending}"' in line:
                        self.endings[ending] = self.endings.get(ending, 0) + 1

    def _body(self) -> dict[str, Any]:
        choose = self.random
        return {
            "model": "demo",
            "prompt": [choose.randrange(300) for _ in range(choose.choice([1, 5, 20, 63, 64, 65, 200]))],
            "max_tokens": choose.choice([1, 2, 8, 24]),
            "n": choose.choice([1, 1, 1, 2]),
            "temperature": choose.choice([0, 0.7, 1.5]),
            "stop": choose.choice([None, ["a"], ["zz", "1"]]),
            "logprobs": choose.choice([None, None, 2]),
            "stream": True,
        }

    def _memory_bytes(self) -> int:
        assert self.server.process is not None
        pids = [self.server.process.pid, *self.server.child_pids()]
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
        return sum(pages) * 4096

    def growth(self) -> float:
        """Relative growth of memory over the last three quarters, between medians, so that one peak says nothing."""
        quarters = [
            sorted(size for sent, size in self.samples if low < sent / NUM_REQUESTS <= low + 0.25)
            for low in (0.25, 0.75)
        ]
        first, last = (sizes[len(sizes) // 2] for sizes in quarters)
        return last / first - 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_perf_007_two_thousand_requests_leave_nothing_behind(demo_model: Path) -> None:
    arguments = [
        str(demo_model),
        "--served-model-name",
        "demo",
        "--max-num-seqs",
        "16",
        "--max-model-len",
        "512",
    ]
    with ServerProcess(arguments) as server:
        soak = Soak(server, random.Random(3))
        asyncio.run(soak.run())
        assert soak.num_aborted > NUM_REQUESTS // 10
        assert set(soak.endings) == {"stop", "length"}
        assert holds_within(IDLE_S, lambda: gauge(server, "vllm:num_requests_running") == 0)
        assert holds_within(IDLE_S, lambda: gauge(server, "vllm:num_requests_waiting") == 0)
        assert holds_within(IDLE_S, lambda: gauge(server, "vllm:kv_cache_usage_perc") == 0)
        assert soak.growth() < MAX_GROWTH, soak.samples[::10]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_soak_script_finds_nothing() -> None:
    with ServerProcess(server_arguments(64)) as server:
        report = asyncio.run(soak(server, num_streams=64, seconds=40))
        assert server.process is not None and server.process.poll() is None
    # A stall is a matter of the machine that this runs on; scripts/soak judges it where nothing else runs.
    assert [fault for fault in report.faults() if "heartbeat" not in fault] == []
    assert report.heartbeats > 10
    assert report.num_tokens > 100
