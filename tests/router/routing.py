"""A whole router in the test's own loop, and a road to an engine that can be cut."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from qanat.router.assembly import Router
from qanat.router.config import make_config
from qanat.router.options import RouterOptions

T = TypeVar("T")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LIMIT_S = 120.0


def run(test: Coroutine[Any, Any, T]) -> T:
    """A test that hangs fails."""

    async def bounded() -> T:
        async with asyncio.timeout(LIMIT_S):
            return await test

    return asyncio.run(bounded())


@dataclass
class Routed:
    """A running router and a client of it."""

    router: Router
    http: httpx.AsyncClient
    port: int

    async def stream(self, path: str, body: dict[str, Any]) -> bytes:
        """The bytes of a streamed answer, whose head must be good."""
        async with self.http.stream("POST", path, json={**body, "stream": True}) as response:
            content = await response.aread()
            assert response.status_code == 200, content
            assert response.headers["content-type"].startswith("text/event-stream")
            return content


@asynccontextmanager
async def routed(*words: str, secrets: dict[str, str] | None = None, **options: Any) -> AsyncIterator[Routed]:
    """A router in front of these engines, for as long as the context lasts."""
    settings: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "access_log": "off", **options}
    router = Router(make_config(RouterOptions(**settings), words, secret_of=(secrets or {}).get))
    port = await router.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, verify=False) as client:
            yield Routed(router, client, port)
    finally:
        await router.close(1.0)


@dataclass
class Cut:
    """Where a stream breaks: after so many whole events and so many bytes of the next; "abort", "end" or "stall"."""

    num_events: int
    num_bytes: int = 0
    how: str = "abort"


@dataclass
class CuttableRoad:
    """Passes connections on to an engine; streams break where `cuts` says, one cut for each stream that comes.

    Attributes:
        cuts: of the streams to come; whole once they are used up.
        bodies: of the POST requests that came.
        num_open: connections of now.
    """

    target_port: int
    cuts: list[Cut | None] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    port: int = 0
    num_open: int = 0
    _stalled: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_open += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length.group(1)) if length else 0)
            if head.startswith(b"POST"):
                self.bodies.append(body)
            await self._pass_on(head, body, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            self.num_open -= 1
            if writer not in self._stalled:
                writer.close()

    async def _pass_on(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        engine_reader, engine_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        try:
            engine_writer.write(head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + body)
            answer_head = await engine_reader.readuntil(b"\r\n\r\n")
            writer.write(answer_head)
            cut = None
            if b"text/event-stream" in answer_head and self.cuts:
                cut = self.cuts.pop(0)
            left = cut.num_events if cut is not None else -1
            while data := await engine_reader.read(65536):
                if cut is not None:
                    place = _place(data, left)
                    if place >= 0:
                        writer.write(data[: place + cut.num_bytes])
                        await self._break(cut, writer)
                        return
                    left -= data.count(b"\n\n")
                writer.write(data)
                await writer.drain()
        finally:
            engine_writer.close()

    async def _break(self, cut: Cut, writer: asyncio.StreamWriter) -> None:
        if cut.how == "stall":
            self._stalled.append(writer)
            return
        if cut.how == "end":
            writer.write(b"\r\n0\r\n\r\n")  # the end of the chunk that the cut fell behind, and of the body
        await writer.drain()
        writer.close()

    def close(self) -> None:
        for writer in self._stalled:
            writer.close()


def _place(data: bytes, num_events: int) -> int:
    """Where the event of that number ends; below 0 if it is not in the data."""
    place = 0
    for _ in range(num_events):
        found = data.find(b"\n\n", place)
        if found < 0:
            return -1
        place = found + 2
    return place


@asynccontextmanager
async def cuttable(target_ports: Sequence[int]) -> AsyncIterator[list[CuttableRoad]]:
    """One road to each engine."""
    roads = [CuttableRoad(port) for port in target_ports]
    servers = []
    for road in roads:
        server = await asyncio.start_server(road.serve, "127.0.0.1", 0)
        road.port = server.sockets[0].getsockname()[1]
        servers.append(server)
    try:
        yield roads
    finally:
        for server, road in zip(servers, roads, strict=True):
            road.close()
            server.close()


_VARYING = (
    (re.compile(rb'"id":"(chatcmpl|cmpl)-[^"]*"'), rb'"id":"\1"'),
    (re.compile(rb'"created":\d+'), b'"created":0'),
    (re.compile(rb'"timing":\{(?:[^{}]|\{[^{}]*\})*\}'), b'"timing":{}'),
    (re.compile(rb'"prompt_tokens_details":\{[^}]*\}'), b'"prompt_tokens_details":{}'),
    (re.compile(rb'"id":"call_[^"]*"'), b'"id":"call"'),
)


def comparable(stream: bytes) -> list[bytes]:
    """The events without what differs between any two runs: ids, times, and how much a cache had."""
    for pattern, replacement in _VARYING:
        stream = pattern.sub(replacement, stream)
    return stream.split(b"\n\n")


def ids_of(stream: bytes) -> tuple[set[bytes], set[bytes]]:
    """The ids and the dates that a stream's events carry; one each in a stream that is one."""
    return (
        set(re.findall(rb'data: \{"id":"([^"]*)"', stream)),
        set(re.findall(rb'"created":(\d+)', stream)),
    )
