"""The little of HTTP that the hot endpoints need, on bare ASGI: read a body, send JSON, stream, notice a hang-up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from starlette.types import Message, Receive, Scope, Send

from qanat.core.errors import QanatError
from qanat.server.errors import BodyTooLargeError, MediaTypeError, error_body, error_headers

MAX_DISCARDED_BYTES = 2**30
"""How much of a body that is too large is read and dropped, so that the client gets to see the answer."""

JSON_HEADERS = [(b"content-type", b"application/json")]
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
STREAM_END = b"data: [DONE]\n\n"

_encoder = msgspec.json.Encoder()


class ClientGoneError(Exception):
    """The client closed the connection before its body was complete."""


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of this lower-case name."""
    for key, value in scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return None


async def read_json_body(scope: Scope, receive: Receive, max_body_bytes: int) -> bytes:
    """The whole request body.

    Args:
        scope: of the request.
        receive: as ASGI has it.
        max_body_bytes: larger bodies are refused.

    Raises:
        MediaTypeError: it is declared as something other than JSON, or as compressed.
        BodyTooLargeError: it is larger.
        ClientGoneError: the client hung up.
    """
    media_type = (header(scope, b"content-type") or "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise MediaTypeError(f"Content-Type must be application/json, got {media_type}.")
    encoding = (header(scope, b"content-encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise MediaTypeError(f"Bodies in Content-Encoding {encoding} are not read; send it uncompressed.")
    chunks: list[bytes] = []
    size_bytes = 0
    has_more = True
    while has_more and size_bytes <= MAX_DISCARDED_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk: bytes = message.get("body", b"")
        size_bytes += len(chunk)
        if size_bytes <= max_body_bytes:
            chunks.append(chunk)
        has_more = message.get("more_body", False)
    if size_bytes > max_body_bytes:
        raise BodyTooLargeError(
            f"The body is larger than {max_body_bytes} bytes (--max-request-bytes). Send less at a time."
        )
    return b"".join(chunks)


async def send_json(send: Send, value: object, status: int = 200) -> None:
    """Sends one JSON response."""
    body = _encoder.encode(value)
    headers = [*JSON_HEADERS, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: QanatError) -> None:
    """Sends an error response, with the headers that it asks for."""
    body = _encoder.encode(error_body(error))
    headers = [*JSON_HEADERS, (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in error_headers(error).items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def with_headers(send: Send, headers: Callable[[], list[tuple[bytes, bytes]]]) -> Send:
    """`send` with more headers, asked for when the response starts."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *headers()]
        await send(message)

    return send_with_headers


def stream_chunk(value: object) -> bytes:
    """One server-sent event."""
    return b"data: " + _encoder.encode(value) + b"\n\n"


async def start_stream(send: Send) -> None:
    """Sends the headers of an event stream."""
    await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})


async def send_chunk(send: Send, chunk: bytes, *, is_last: bool = False) -> None:
    """Sends a piece of a streamed body; waits while the client reads too slowly."""
    await send({"type": "http.response.body", "body": chunk, "more_body": not is_last})


async def run_until_disconnect(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Runs `work` and cancels it as soon as the client hangs up. To be called once the body has been read.

    `work` must have released everything before it sends its last byte: from then on the connection counts as closed.
    """
    current = asyncio.current_task()
    assert current is not None
    watcher = asyncio.create_task(_cancel_at_disconnect(receive, current))
    try:
        await work
    except asyncio.CancelledError:
        if not watcher.done():  # someone else cancels: the server is stopping
            raise
        current.uncancel()
    finally:
        watcher.cancel()


async def _cancel_at_disconnect(receive: Receive, task: asyncio.Task[Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()
