"""One HTTP/1.1 request and its answer over asyncio streams, each with one deadline for the whole of it.

http.client bounds every read, not their sum: a server that sends a byte a minute holds it for ever. Here a deadline
is a deadline, a stream can be left in the middle, and hundreds of requests can be open at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from qanat.deploy.verify.address import Address

MAX_BODY_BYTES = 256 * 2**20
MAX_HEAD_BYTES = 64 * 2**10
READ_BYTES = 64 * 2**10
Failure = Literal["refused", "unreachable", "timeout", "tls", "broken", "too_long", "no_http"]


class ExchangeError(Exception):
    """There is no complete answer.

    Args:
        failure: what kind of thing happened.
        text: what was seen, for a person.
    """

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure = failure
        self.text = text


@dataclass
class Incoming:
    """An answer whose head has been read.

    Attributes:
        status: HTTP status.
        headers: values by lower-case name.
        started: `time.monotonic` at which the request was begun.
    """

    status: int
    headers: Mapping[str, str]
    started: float
    _reader: asyncio.StreamReader = field(repr=False)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes.

        Raises:
            ExchangeError: it breaks off, is not framed as HTTP says, or never ends.
        """
        num_bytes = 0
        async for piece in self._framed():
            num_bytes += len(piece)
            if num_bytes > MAX_BODY_BYTES:
                raise _too_long("the answer is longer")
            yield piece

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def _framed(self) -> AsyncIterator[bytes]:
        if self.status in (204, 304):
            return
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            async for piece in self._chunks():
                yield piece
            return
        length = self.headers.get("content-length")
        if length is not None and not (length.isascii() and length.isdigit()):
            raise ExchangeError("no_http", f"Content-Length is {length!r}")
        left = int(length) if length is not None else None
        if left is not None and left > MAX_BODY_BYTES:
            raise _too_long(f"an answer of {left} bytes is announced, more")
        while left is None or left > 0:
            piece = await self._reader.read(READ_BYTES if left is None else min(left, READ_BYTES))
            if not piece:
                break
            if left is not None:
                left -= len(piece)
            yield piece
        if left:
            raise ExchangeError("broken", f"the answer ended {left} bytes before its announced end")

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            line = await self._reader.readline()
            size_text = line.split(b";")[0].strip()
            if not line.endswith(b"\n"):
                raise ExchangeError("broken", "the connection closed before the end of the answer")
            try:
                size = int(size_text, 16)
            except ValueError:
                raise ExchangeError("no_http", f"a chunk has the size {size_text[:20]!r}") from None
            if size <= 0:
                return
            if size > MAX_BODY_BYTES:
                raise _too_long(f"a piece of {size} bytes is announced, more")
            yield await self._reader.readexactly(size)
            await self._reader.readexactly(2)


@dataclass(frozen=True)
class Answer:
    """A complete answer; `seconds` counts from the connection to the last byte."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float


class Exchange:
    """Sends requests to one address.

    Args:
        address: of the service.
        api_key: sent as a bearer token where there is one; never part of any message.
        tls: for https; the system's certificates unless given.
    """

    def __init__(
        self, address: Address, api_key: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.address = address
        self.has_key = api_key is not None
        self._key = api_key
        self._tls = (tls or ssl.create_default_context()) if address.is_tls else None

    def hide(self, text: str) -> str:
        """A text without the key: servers may repeat it in what they answer."""
        return text.replace(self._key, "***") if self._key else text

    async def request(
        self, method: str, path: str, body: bytes | None = None, *, timeout_s: float, with_key: bool = True
    ) -> Answer:
        """A request and its whole answer.

        Args:
            method: GET or POST.
            path: below the address, with a slash at its beginning.
            body: JSON, or what is to be taken for it.
            timeout_s: for all of it.
            with_key: whether the key is sent.

        Raises:
            ExchangeError: there is no complete answer in time.
        """
        async with self.open(method, path, body, timeout_s=timeout_s, with_key=with_key) as incoming:
            content = await incoming.body()
            return Answer(incoming.status, incoming.headers, content, time.monotonic() - incoming.started)

    @contextlib.asynccontextmanager
    async def open(
        self, method: str, path: str, body: bytes | None = None, *, timeout_s: float, with_key: bool = True
    ) -> AsyncIterator[Incoming]:
        """A request whose answer is read by the caller; leaving the context closes the connection at once.

        Raises:
            ExchangeError: there is no complete answer in time; also out of what runs inside of the context.
        """
        started = time.monotonic()
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(
                    self.address.host, self.address.port, ssl=self._tls, limit=MAX_HEAD_BYTES
                )
                writer.write(self._head(method, path, body, with_key) + (body or b""))
                await _drain(writer)
                status, headers = await _read_head(reader)
                yield Incoming(status, headers, started, reader)
        except TimeoutError:
            raise ExchangeError("timeout", f"no complete answer within {timeout_s:g} s") from None
        except ssl.SSLError as error:
            raise ExchangeError("tls", error.reason or str(error)) from None
        except socket.gaierror as error:
            raise ExchangeError("unreachable", f"{self.address.host}: {error.strerror}") from None
        except ConnectionRefusedError:
            raise ExchangeError("refused", f"nothing listens on {self.address.authority}") from None
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError) as error:
            raise ExchangeError("broken", _describe(error)) from None
        except OSError as error:
            raise ExchangeError("unreachable", error.strerror or str(error)) from None
        finally:
            if writer is not None:
                writer.transport.abort()

    def _head(self, method: str, path: str, body: bytes | None, with_key: bool) -> bytes:
        lines = [
            f"{method} {self.address.path}{path} HTTP/1.1",
            f"Host: {self.address.authority}",
            "Accept: application/json, text/event-stream",
            "Accept-Encoding: identity",
            "User-Agent: qanat-deploy-verify",
            "Connection: close",
        ]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        if self._key and with_key:
            lines.append(f"Authorization: Bearer {self._key}")
        return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _drain(writer: asyncio.StreamWriter) -> None:
    """Waits until the request is sent; one that was answered before its end has been refused, and can be read."""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        await writer.drain()


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    while True:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise ExchangeError("broken", "the connection closed without an answer") from None
            raise ExchangeError("no_http", f"it answers {error.partial[:40]!r}") from None
        except asyncio.LimitOverrunError:
            raise ExchangeError("no_http", "its answer has no end of headers") from None
        first, *lines = head.split("\r\n")
        words = first.split(" ", 2)
        if not first.startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            raise ExchangeError("no_http", f"it answers {first[:40]!r}")
        status = int(words[1])
        if status >= 200:
            pairs = (line.partition(":") for line in lines if line)
            return status, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _too_long(what: str) -> ExchangeError:
    return ExchangeError("too_long", f"{what} than the {MAX_BODY_BYTES >> 20} MiB that are read of one")


def _describe(error: Exception) -> str:
    if isinstance(error, ConnectionError):
        return "the connection was reset"
    if isinstance(error, asyncio.IncompleteReadError):
        return "the connection closed before the end of the answer"
    return f"the answer cannot be read: {error}"
