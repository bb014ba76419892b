"""An engine that says, event by event, what a test tells it to: odd streams that no model would write on demand."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

DONE = b"data: [DONE]\n\n"


@dataclass
class Said:
    """One answer.

    Attributes:
        events: objects become events, bytes are sent as they are.
        is_cut: the connection breaks after them; else the answer ends in order.
        status, content_type: of its head.
    """

    events: Sequence[dict[str, Any] | bytes]
    is_cut: bool = False
    status: int = 200
    content_type: str = "text/event-stream; charset=utf-8"


@dataclass
class ScriptedEngine:
    """One engine.

    Attributes:
        answer: what is said to a request's fields; None for a body that is no JSON object.
        owner: of its model, by which its kind is known.
        key: without it as a bearer token every answer is 401; empty for none.
        asked: fields of the POST requests that were let in.
        bodies: the same as bytes.
        model_keys: of the requests for /v1/models.
    """

    answer: Callable[[Any], Said]
    owner: str = "vllm"
    key: str = ""
    asked: list[Any] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    model_keys: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length.group(1)) if length else 0)
        method, path, _ = head.split(" ", 2)
        sent = re.search(r"authorization: Bearer (\S+)", head, re.IGNORECASE)
        key = sent.group(1) if sent else ""
        if path == "/v1/models":
            self.model_keys.append(key)
        if self.key and key != self.key and path != "/health":
            _whole(writer, 401, {"error": {"message": "wrong key", "code": 401}})
        elif method != "POST":
            _whole(writer, 200, {"data": [{"id": "m", "owned_by": self.owner}]})
        else:
            return await self._say(body, writer)
        return True

    async def _say(self, body: bytes, writer: asyncio.StreamWriter) -> bool:
        try:
            fields = json.loads(body)
        except ValueError:
            fields = None
        self.asked.append(fields)
        self.bodies.append(body)
        said = self.answer(fields)
        writer.write(
            b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n"
            % (said.status, said.content_type.encode())
        )
        for event in said.events:
            data = event if isinstance(event, bytes) else b"data: %b\n\n" % json.dumps(event).encode()
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        if not said.is_cut:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return not said.is_cut


def _whole(writer: asyncio.StreamWriter, status: int, fields: dict[str, Any]) -> None:
    body = json.dumps(fields).encode()
    writer.write(
        b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (status, len(body), body)
    )


@asynccontextmanager
async def scripted(*engines: ScriptedEngine) -> AsyncIterator[None]:
    """The engines listen as long as the context lasts."""
    servers = []
    for engine in engines:
        server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, limit=1 << 26)
        engine.port = server.sockets[0].getsockname()[1]
        servers.append(server)
    try:
        yield
    finally:
        for server in servers:
            server.close()


def text(piece: str, end: str | None = None, *, usage: int | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of a completion, with the running count of output tokens where there is one."""
    choice = {"index": 0, "text": piece, "logprobs": None, "finish_reason": end, "stop_reason": None, **more}
    return _chunk("text_completion", choice, usage)


def delta(end: str | None = None, *, usage: int | None = None, **news: Any) -> dict[str, Any]:
    """A chunk of a chat."""
    choice = {"index": 0, "delta": news, "logprobs": None, "finish_reason": end}
    return _chunk("chat.completion.chunk", choice, usage)


def _chunk(kind: str, choice: dict[str, Any], usage: int | None) -> dict[str, Any]:
    chunk = {"id": "c-1", "object": kind, "created": 1, "model": "m", "choices": [choice]}
    return chunk if usage is None else {**chunk, "usage": counts(usage)}


def counts(num_output_tokens: int, num_prompt_tokens: int = 9) -> dict[str, Any]:
    """A usage."""
    return {
        "prompt_tokens": num_prompt_tokens,
        "total_tokens": num_prompt_tokens + num_output_tokens,
        "completion_tokens": num_output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
