"""A service as checks see it: requests of the OpenAI API, and every bad answer as a fault with a name."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from qanat.deploy.verify.events import EventReader
from qanat.deploy.verify.exchange import Answer, Exchange, ExchangeError, Incoming
from qanat.deploy.verify.replies import MisfitError, Reply, add_chunk, read_reply

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
DONE = "[DONE]"
MAX_SHOWN_CHARS = 200


class Fault(Exception):
    """Something is not as it should be.

    Args:
        symptom: its entry in the table of symptoms, which says what it means.
        seen: what was seen.
        status: HTTP status of the answer at fault, where there is one.
    """

    def __init__(self, symptom: str, seen: str, status: int = 0) -> None:
        super().__init__(seen)
        self.symptom = symptom
        self.seen = seen
        self.status = status


def shown(text: str, max_chars: int = MAX_SHOWN_CHARS) -> str:
    """A text on one line, cut if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= max_chars else line[: max_chars - 3] + "..."


class Service:
    """Asks one service.

    Args:
        exchange: with the address.
        timeout_s: for one request, unless a check gives its own.
    """

    def __init__(self, exchange: Exchange, timeout_s: float) -> None:
        self.exchange = exchange
        self.timeout_s = timeout_s

    async def get(self, path: str, *, timeout_s: float | None = None, with_key: bool = True) -> Answer:
        """The answer to a GET, whatever its status.

        Raises:
            Fault: there is none.
        """
        with _faults():
            limit = timeout_s or self.timeout_s
            return await self.exchange.request("GET", path, timeout_s=limit, with_key=with_key)

    async def post(self, path: str, body: bytes, *, timeout_s: float | None = None) -> Answer:
        """The answer to bytes that are taken for JSON, whatever its status.

        Raises:
            Fault: there is none.
        """
        with _faults():
            return await self.exchange.request("POST", path, body, timeout_s=timeout_s or self.timeout_s)

    async def reply(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> Reply:
        """The whole answer of `COMPLETIONS` or `CHAT`.

        Raises:
            Fault: it is an error, or has another shape.
        """
        answer = await self.post(path, json.dumps(body).encode(), timeout_s=timeout_s)
        value = read_object(answer)
        try:
            reply = read_reply(value, is_chat=path == CHAT)
        except MisfitError as error:
            raise Fault("misshapen_answer", f"{path}: {error}") from None
        reply.seconds = answer.seconds
        return reply

    async def streamed(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> Reply:
        """A streamed answer, put together; the usage is asked for.

        Raises:
            Fault: it is an error, no stream of events, or ends before its end.
        """
        async with self.stream(path, body, timeout_s=timeout_s) as stream:
            async for _ in stream:
                pass
            return stream.finish()

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> AsyncIterator[Stream]:
        """A streamed answer while it comes; leaving the context hangs up.

        Raises:
            Fault: as for `streamed`.
        """
        wanted = {**body, "stream": True, "stream_options": {"include_usage": True}}
        content, limit = json.dumps(wanted).encode(), timeout_s or self.timeout_s
        with _faults():
            async with self.exchange.open("POST", path, content, timeout_s=limit) as incoming:
                if incoming.status != 200:
                    raise refusal(incoming.status, await incoming.body())
                yield Stream(incoming, is_chat=path == CHAT)


class Stream:
    """Chunks of a streamed answer; an iterator over what has come so far.

    Args:
        incoming: the answer, its head read.
        is_chat: whether chunks are those of a chat completion.
    """

    def __init__(self, incoming: Incoming, *, is_chat: bool) -> None:
        self.reply = Reply()
        self._incoming = incoming
        self._is_chat = is_chat
        self._events = EventReader()
        self._is_done = False
        self._head = b""

    async def __aiter__(self) -> AsyncIterator[Reply]:
        async for piece in self._incoming.pieces():
            self._head = (
                (self._head + piece)[:MAX_SHOWN_CHARS] if len(self._head) < MAX_SHOWN_CHARS else self._head
            )
            for data in self._events.feed(piece):
                self._event(data)
            yield self.reply

    def _event(self, data: str) -> None:
        if self._is_done:
            raise Fault("broken_stream", f"an event came after {DONE}: {shown(data)}")
        if data.strip() == DONE:
            self._is_done = True
            return
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise Fault("broken_stream", f"an event is no JSON: {shown(data)}") from None
        if isinstance(value, dict) and value.get("error"):
            raise Fault("error_in_stream", shown(message_of(data.encode())))
        try:
            seconds = time.monotonic() - self._incoming.started
            add_chunk(self.reply, value, is_chat=self._is_chat, seconds=seconds)
        except MisfitError as error:
            raise Fault("broken_stream", f"{error}: {shown(data)}") from None

    def finish(self) -> Reply:
        """The answer, once all pieces have been read.

        Raises:
            Fault: it is none.
        """
        self._events.finish()
        if not self._head:
            raise Fault("empty_answer", "status 200 with an empty body, to a streamed request", 200)
        kind = self._incoming.headers.get("content-type", "")
        if not self.reply.choices and not kind.startswith("text/event-stream"):
            text = shown(self._head.decode(errors="replace"))
            raise Fault("broken_stream", f"the answer is {kind or 'of no type'}, no stream of events: {text}")
        if self._events.faults:
            raise Fault("broken_stream", self._events.faults[0])
        if not self._is_done:
            raise Fault("broken_stream", f"the stream ended without {DONE}")
        if not self.reply.choices:
            raise Fault("broken_stream", "the stream brought no choice")
        for index, choice in sorted(self.reply.choices.items()):
            if choice.finish_reason is None:
                raise Fault("broken_stream", f"choice {index} has no finish_reason")
        self.reply.seconds = time.monotonic() - self._incoming.started
        return self.reply


def read_object(answer: Answer) -> dict[str, Any]:
    """The JSON object of a good answer.

    Raises:
        Fault: the status is not 200, or the body is empty, no JSON object, or an error.
    """
    if answer.status != 200:
        raise refusal(answer.status, answer.body)
    if not answer.body.strip():
        raise Fault("empty_answer", "status 200 with an empty body", 200)
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        raise Fault(
            "no_json", f"status 200 with {shown(answer.body.decode(errors='replace'))}", 200
        ) from None
    if not isinstance(value, dict):
        raise Fault("misshapen_answer", f"the answer is a {type(value).__name__} instead of an object", 200)
    if value.get("error") or value.get("object") == "error":
        raise Fault("error_as_success", f"status 200 with the error: {shown(message_of(answer.body))}", 200)
    return value


def refusal(status: int, body: bytes) -> Fault:
    """The fault that a status other than 200 is."""
    seen = f"status {status}: {shown(message_of(body))}"
    if 300 <= status < 400:
        return Fault("redirected", seen, status)
    if status in (401, 403):
        return Fault("key_refused", seen, status)
    if status in (429, 503):
        return Fault("busy", seen, status)
    if 400 <= status < 500:
        return Fault("refused", seen, status)
    return Fault("server_error", seen, status)


def message_of(body: bytes) -> str:
    """The message inside an error's body, or the body."""
    text = body.decode(errors="replace")
    try:
        value = json.loads(text)
        error = value.get("error", value)
        message = error if isinstance(error, str) else error.get("message") or error.get("detail") or text
    except (ValueError, AttributeError, RecursionError):
        message = text
    return str(message).strip() or "an empty body"


_SYMPTOMS = {
    "refused": "not_reachable",
    "unreachable": "not_reachable",
    "timeout": "no_answer_in_time",
    "tls": "tls_failed",
    "broken": "broken_off",
    "too_long": "answer_too_long",
    "no_http": "no_http",
}


@contextlib.contextmanager
def _faults() -> Any:
    """Turns failed exchanges into faults."""
    try:
        yield
    except ExchangeError as error:
        raise Fault(_SYMPTOMS[error.failure], error.text) from None
