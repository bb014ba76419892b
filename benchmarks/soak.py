"""Many streams for minutes, a third of them cut at random, slow readers among them; then a look at what is left.

    scripts/soak [--minutes 10] [--streams 256] [--json FILE]

A fault is: memory or sockets that grow, blocks that stay owned, a stream that ends without its end mark or an error
event, an engine that stops for slow readers, or a heartbeat (GET /health) that takes over 100 ms by the server's fault.
The time in which the server's process was ready to run and other processes had the processor is not its fault; the
kernel counts it, and it is taken off.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import qanat_demo
import uvloop

from benchmarks.stream_client import EVENT, LAST_CHUNK, http_request, read_answer
from tests.support.server_process import ServerProcess

MAX_STALL_S = 0.1
MAX_GROWTH = 0.05
MAX_GROWTH_BYTES = 24 * 2**20
"""Memory may grow by the larger of both between the second and the last quarter."""
MAX_SILENCE_S = 10.0
IDLE_TIMEOUT_S = 60.0
SAMPLE_S = 1.0
SLOW_SHARE = 1 / 16
CUT_SHARE = 1 / 3
WORDS = ["What is 12 + 34?", "The future of AI is", "Count to ten.", "Why? " * 40]


@dataclass
class Report:
    """What the run found.

    Attributes:
        endings: streams by how they ended.
        num_tokens: that the engine generated.
        heartbeats: number of them.
        longest_heartbeat_s: as the client saw it.
        longest_stall_s: the longest without the time in which the machine was busy with others.
        longest_wait_s: the longest time for the processor during one heartbeat: the machine's noise.
        longest_silence_s: without any new token although requests were running.
        memory_bytes: of all processes of the server, sampled every second.
        num_sockets: of the server before and after.
        left: what is owned after the end, by metric.
    """

    endings: Counter[str] = field(default_factory=Counter)
    num_tokens: int = 0
    heartbeats: int = 0
    longest_heartbeat_s: float = 0.0
    longest_stall_s: float = 0.0
    longest_wait_s: float = 0.0
    longest_silence_s: float = 0.0
    memory_bytes: list[int] = field(default_factory=list)
    num_sockets: tuple[int, int] = (0, 0)
    left: dict[str, float] = field(default_factory=dict)

    @property
    def growth_bytes(self) -> int:
        """Median memory of the last quarter less that of the second."""
        quarter = len(self.memory_bytes) // 4
        second, last = self.memory_bytes[quarter : 2 * quarter], self.memory_bytes[3 * quarter :]
        return int(statistics.median(last) - statistics.median(second))

    def faults(self) -> list[str]:
        """What is wrong, in words."""
        found = [f"{name} is {value} after the end" for name, value in self.left.items() if value]
        allowed = max(MAX_GROWTH_BYTES, MAX_GROWTH * self.memory_bytes[0])
        if self.growth_bytes > allowed:
            found.append(f"memory grew by {self.growth_bytes} bytes")
        if self.num_sockets[1] > self.num_sockets[0]:
            found.append(f"{self.num_sockets[1] - self.num_sockets[0]} sockets were left open")
        if self.longest_stall_s > MAX_STALL_S:
            found.append(f"a heartbeat took {self.longest_stall_s:.3f} s by the server's fault")
        if self.longest_silence_s > MAX_SILENCE_S:
            found.append(f"the engine said nothing for {self.longest_silence_s:.1f} s")
        if self.endings["broken"] or self.endings["refused"]:
            found.append(f"streams ended without their end mark, or were refused: {dict(self.endings)}")
        if not (self.endings["complete"] and self.endings["cut"]):
            found.append(f"no streams of each kind: {dict(self.endings)}")
        return found


class Soak:
    """One run against one server."""

    def __init__(self, server: ServerProcess, num_streams: int, seconds: float, seed: int = 1) -> None:
        assert server.process is not None
        self._server = server
        self._num_streams = num_streams
        self._end_s = time.monotonic() + seconds
        self._random = random.Random(seed)
        self._pids = [server.process.pid, *server.child_pids()]
        self.report = Report()

    async def run(self) -> Report:
        """Runs to the end and waits until the server is idle."""
        sampling = asyncio.create_task(self._sample())
        slow = int(self._num_streams * SLOW_SHARE)
        await asyncio.gather(*(self._client(is_slow=i < slow) for i in range(self._num_streams)))
        await sampling
        await self._settle()
        return self.report

    async def _client(self, *, is_slow: bool) -> None:
        while (left_s := self._end_s - time.monotonic()) > 0:
            try:
                ending = await asyncio.wait_for(self._stream(is_slow), left_s)
            except TimeoutError:
                ending = "cut"
            self.report.endings[ending] += 1

    async def _stream(self, is_slow: bool) -> str:
        """One stream on a connection of its own; returns how it ended."""
        body = self._body()
        chooses = self._random
        num_until_cut = chooses.randrange(body["max_tokens"]) if chooses.random() < CUT_SHARE else None
        sock = socket.socket()
        sock.setblocking(False)
        if is_slow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self._server.port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=4096 if is_slow else 65536)
        try:
            path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
            writer.write(http_request(path, body))
            return await self._read(reader, num_until_cut, is_slow)
        finally:
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, num_until_cut: int | None, is_slow: bool) -> str:
        tail = b""
        num_events = 0
        while True:
            if num_until_cut is not None and num_events >= num_until_cut:
                return "cut"
            if is_slow:
                await asyncio.sleep(self._random.uniform(0.0, 0.4))
            piece = await reader.read(512 if is_slow else 65536)
            if not piece:
                return "broken"
            if not tail and not piece.startswith(b"HTTP/1.1 200"):
                return "refused"
            num_events += piece.count(EVENT)
            tail = (tail + piece)[-400:]
            if tail.endswith(LAST_CHUNK):
                return "complete" if b"data: [DONE]" in tail else "error" if b'"error"' in tail else "broken"

    def _body(self) -> dict[str, Any]:
        chooses = self._random
        body: dict[str, Any] = {
            "max_tokens": chooses.choice([1, 8, 32, 64, 150]),
            "temperature": chooses.choice([0, 0.8]),
            "n": chooses.choice([1, 1, 1, 2]),
            "ignore_eos": chooses.random() < 0.7,
            "stop": chooses.choice([None, None, ["zz", "7"]]),
            "stream": True,
            "stream_options": {"include_usage": chooses.random() < 0.5},
        }
        text = chooses.choice(WORDS)
        if chooses.random() < 0.5:
            return {**body, "prompt": text, "logprobs": chooses.choice([None, None, 2])}
        return {**body, "messages": [{"role": "user", "content": text}]}

    async def _sample(self) -> None:
        """Memory, and whether the engine goes on, once a second."""
        last_tokens, last_news_s = 0.0, time.monotonic()
        async with httpx.AsyncClient(base_url=self._server.base_url, timeout=30) as client:
            while time.monotonic() < self._end_s:
                self.report.memory_bytes.append(memory_bytes(self._pids))
                gauges = metrics((await client.get("/metrics")).text)
                tokens = gauges["vllm:generation_tokens_total"]
                now_s = time.monotonic()
                if tokens > last_tokens or not gauges["vllm:num_requests_running"]:
                    last_tokens, last_news_s = tokens, now_s
                self.report.longest_silence_s = max(self.report.longest_silence_s, now_s - last_news_s)
                self.report.num_tokens = int(tokens)
                await asyncio.sleep(SAMPLE_S)

    async def _settle(self) -> None:
        """Waits until nothing is owned; what stays is in the report."""
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        end_s = time.monotonic() + IDLE_TIMEOUT_S
        while True:
            async with httpx.AsyncClient(base_url=self._server.base_url, timeout=30) as client:
                gauges = metrics((await client.get("/metrics")).text)
            self.report.left = {name: gauges[name] for name in names}
            if not any(self.report.left.values()) or time.monotonic() > end_s:
                break
            await asyncio.sleep(0.2)


def num_sockets(pid: int) -> int:
    """Open sockets of a process."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except FileNotFoundError:  # closed meanwhile
            continue
    return sum(link.startswith("socket:") for link in links)


def metrics(text: str) -> dict[str, float]:
    """Values of Prometheus text by name; of several with one name the sum."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name = line.partition("{")[0].partition(" ")[0]
            values[name] = values.get(name, 0.0) + float(line.rpartition(" ")[2])
    return values


def memory_bytes(pids: list[int]) -> int:
    """Resident memory of these processes together."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * os.sysconf(
        "SC_PAGE_SIZE"
    )


def waited_s(path: str) -> float:
    """Seconds that a thread was ready to run and did not: other work had the processor."""
    return int(Path(path).read_text().split()[1]) / 1e9


async def beat(port: int, server_pid: int, period_s: float = 0.05) -> None:
    """Asks /health on one connection until standard input ends, then prints what the slowest of the answers were."""
    server_path = f"/proc/{server_pid}/task/{server_pid}/schedstat"
    own_path = "/proc/self/schedstat"
    found = {"heartbeats": 0, "longest_heartbeat_s": 0.0, "longest_stall_s": 0.0, "longest_wait_s": 0.0}
    is_over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while not is_over.done():
        waits_s, start_s = waited_s(server_path) + waited_s(own_path), time.monotonic()
        writer.write(http_request("/health"))
        await read_answer(reader)
        seconds = time.monotonic() - start_s
        wait_s = waited_s(server_path) + waited_s(own_path) - waits_s
        found["heartbeats"] += 1
        found["longest_heartbeat_s"] = max(found["longest_heartbeat_s"], seconds)
        found["longest_stall_s"] = max(found["longest_stall_s"], seconds - wait_s)
        found["longest_wait_s"] = max(found["longest_wait_s"], wait_s)
        await asyncio.sleep(period_s)
    writer.close()
    sys.stdout.write(json.dumps(found))


async def soak(server: ServerProcess, num_streams: int, seconds: float) -> Report:
    """Runs with a heartbeat beside it, in a process of its own."""
    assert server.process is not None
    pid = server.process.pid
    num_before = num_sockets(pid)
    heart = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.soak", "--beat", str(server.port), str(pid)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    run = Soak(server, num_streams, seconds)
    try:
        report = await run.run()
    finally:
        output, _ = await heart.communicate(b"")
    for name, value in json.loads(output).items():
        setattr(report, name, value)
    end_s = time.monotonic() + IDLE_TIMEOUT_S
    while num_sockets(pid) > num_before and time.monotonic() < end_s:
        await asyncio.sleep(0.1)
    report.num_sockets = (num_before, num_sockets(pid))
    return report


def server_arguments(num_streams: int) -> list[str]:
    """Flags of the server under test: more streams than rows, so that some always wait."""
    rows = max(1, num_streams // 4)
    return [
        *(str(qanat_demo.model_path()), "--served-model-name", "demo", "--max-model-len", "512"),
        *("--max-num-seqs", str(rows), "--disable-uvicorn-access-log"),
    ]


def main() -> int:
    """Runs, prints the report; the exit code is 1 if there is a fault."""
    parser = argparse.ArgumentParser(description="Many streams for minutes, cut and slow ones among them.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--json", help="file for the report")
    parser.add_argument("--beat", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.beat:
        uvloop.run(beat(*options.beat))
        return 0
    with ServerProcess(server_arguments(options.streams)) as server:
        report = uvloop.run(soak(server, options.streams, options.minutes * 60))
    values = {
        **asdict(report),
        "endings": dict(report.endings),
        "growth_bytes": report.growth_bytes,
        "faults": report.faults(),
    }
    if options.json:
        Path(options.json).write_text(json.dumps(values, indent=2))
    del values["memory_bytes"]
    for name, value in values.items():
        sys.stdout.write(f"{name:22} {value}\n")
    return 1 if report.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
