"""Clients and engines of the transport's tests: sockets whose every byte a test decides."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from qanat.router.http.exchange import Handler
from qanat.router.http.front import Front
from qanat.router.http.limits import FrontLimits
from qanat.router.model import Call, Endpoint

T = TypeVar("T")


def run(test: Coroutine[Any, Any, T]) -> T:
    """A test that hangs fails."""

    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await test

    return asyncio.run(bounded())


@dataclass
class Message:
    """A request or an answer as read from the wire; `first` is its first line."""

    first: str
    headers: dict[str, str]
    body: bytes

    @property
    def status(self) -> int:
        return int(self.first.split()[1])


async def read_message(reader: asyncio.StreamReader, has_body: bool = True) -> Message:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = b""
    if not has_body:
        pass
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    elif "transfer-encoding" in headers:
        pieces: list[bytes] = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            pieces.append((await reader.readexactly(size + 2))[:-2])
        body = b"".join(pieces)
        assert await reader.readuntil(b"\r\n") == b"\r\n"
    elif first.startswith("HTTP/"):
        body = await reader.read()
    return Message(first, headers, body)


class Client:
    """A raw connection to a front."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, method: str = "GET", target: str = "/", body: bytes = b"", *headers: str) -> None:
        lines = [f"{method} {target} HTTP/1.1", "Host: h", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def answer(self, has_body: bool = True) -> Message:
        return await read_message(self.reader, has_body)

    async def is_closed(self) -> bool:
        """Waits for the end of the connection; what comes before it fails the test."""
        try:
            rest = await self.reader.read()
        except ConnectionError:
            return True
        assert rest == b""
        return True


@asynccontextmanager
async def serving(
    handler: Handler, limits: FrontLimits | None = None, check: Callable[[Call], None] | None = None
) -> AsyncIterator[tuple[Front, int]]:
    front = Front(handler, limits, check)
    port = await front.listen("127.0.0.1", 0)
    try:
        yield front, port
    finally:
        await front.close(0)


@asynccontextmanager
async def connected(port: int, **options: Any) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


Script = Callable[["EngineSide"], Awaitable[None]]


class EngineSide:
    """One connection as the engine sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> Message:
        return await read_message(self.reader)

    def send(self, data: bytes) -> None:
        if self.writer.transport.is_closing():
            raise ConnectionResetError
        self.writer.write(data)

    async def client_left(self) -> None:
        """Returns when the router has closed the connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass


class Engine:
    """Listens; every connection runs the script and is closed when the script returns."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.num_connections = 0
        self.failures: list[Exception] = []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            await self._script(EngineSide(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except Exception as error:
            self.failures.append(error)
        finally:
            writer.close()


@asynccontextmanager
async def engine(
    script: Script, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Engine, Endpoint]]:
    scripted = Engine(script)
    server = await asyncio.start_server(scripted._serve, host, 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    try:
        yield scripted, Endpoint("engine", host, port, is_tls=tls is not None)
    finally:
        server.close()
    assert scripted.failures == []
