"""An answer that is there already: the prefiller's, where the model ended its output at the first token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from qanat.router.filters import DONE_EVENT
from qanat.router.http.exchange import Flow
from qanat.router.model import Header
from qanat.router.resume_qanat import wants_usage_chunk


class ReadyAnswer:
    """See `qanat.router.road.AnswerLike`.

    Args:
        body: all of it.
        content_type: of it.
    """

    def __init__(self, body: bytes, content_type: bytes) -> None:
        self.status = 200
        self.headers: list[Header] = [(b"content-type", content_type)]
        self._body = body

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, by its name in lower case."""
        return next((value for key, value in self.headers if key == name), None)

    def set_idle_timeout(self, idle_s: float | None) -> None:
        """Nothing is waited for."""

    async def pump(self, receive: Callable[[bytes], None], flow: Flow | None = None) -> None:
        """Hands all of it over."""
        receive(self._body)

    async def body(self) -> AsyncIterator[bytes]:
        """All of it in one piece."""
        yield self._body

    async def read(self, max_bytes: int = 64 << 20) -> bytes:
        """All of it."""
        return self._body


def ready_answer(content: bytes, fields: dict[str, Any]) -> ReadyAnswer:
    """A prefiller's JSON as the answer to the client's request, streamed if the client wants a stream."""
    whole: dict[str, Any] = msgspec.json.decode(content)
    whole.pop("kv_transfer_params", None)
    if fields.get("stream") is not True:
        return ReadyAnswer(msgspec.json.encode(whole), b"application/json")
    events = [_event(chunk) for chunk in _chunks(whole, fields)]
    return ReadyAnswer(b"".join((*events, DONE_EVENT)), b"text/event-stream; charset=utf-8")


def _chunks(whole: dict[str, Any], fields: dict[str, Any]) -> list[dict[str, Any]]:
    is_chat = "messages" in fields
    kind = "chat.completion.chunk" if is_chat else "text_completion"
    shared = {
        "id": whole.get("id"),
        "object": kind,
        "created": whole.get("created"),
        "model": whole.get("model"),
    }
    chunks = []
    for choice in whole["choices"]:
        index = choice.get("index", 0)
        end = {"finish_reason": choice.get("finish_reason"), "stop_reason": choice.get("stop_reason")}
        if is_chat:
            message = dict(choice.get("message") or {})
            role = {"role": message.pop("role", "assistant"), "content": ""}
            news = {name: value for name, value in message.items() if value not in (None, "", [])}
            opening = {"index": index, "delta": role, "logprobs": None, "finish_reason": None}
            chunks.append({**shared, "choices": [opening]})
            chunks.append({**shared, "choices": [{"index": index, "delta": news, "logprobs": None, **end}]})
        else:
            text = {"index": index, "text": choice.get("text", ""), "logprobs": None, **end}
            chunks.append({**shared, "choices": [text]})
    if wants_usage_chunk(fields) and whole.get("usage") is not None:
        chunks.append({**shared, "choices": [], "usage": whole["usage"]})
    return chunks


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(chunk)
