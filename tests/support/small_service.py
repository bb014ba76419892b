"""A small service of the OpenAI API in which any answer can be made wrong; standard library only.

A token is a letter. Greedy texts depend on the prompt alone. As a program: small_service.py PORT MODEL WINDOW.
"""

from __future__ import annotations

import json
import signal
import ssl
import sys
import threading
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

PROSE = (
    "The river ran slowly past the mill, and on its banks grew tall reeds in which herons stood. Every morning a "
    "farmer came by with two grey horses, stopped at the bridge, let them drink, and told the miller what he had "
    "heard in the market: prices of wheat, who had married whom, and when the snow would come from the mountains. "
)
NUM_LETTERS = 100
"""Of an answer that nothing ends earlier."""
Body = dict[str, Any]
Override = Callable[["Handler", Body], bool]
"""Answers a request itself and returns True, or returns False."""
Alteration = Callable[[str, Body, Any], None]
"""Changes an answer: path, request, and the JSON value or the list of chunks of a stream."""


def text_of(prompt: str, extra: str, num_letters: int) -> str:
    """The letters that follow a prompt."""
    start = zlib.crc32(f"{prompt}|{extra}".encode()) % len(PROSE)
    return (PROSE[start:] + PROSE * (num_letters // len(PROSE) + 1))[:num_letters]


class SmallService(ThreadingHTTPServer):
    """Serves on a free port of the loopback interface; use as a context manager.

    Args:
        overrides: by path, asked first.
        alter: changes good answers.
        window: in tokens.
        port: 0 takes a free one.
        model: its name.
        tls: for https.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        overrides: dict[str, Override] | None = None,
        alter: Alteration | None = None,
        window: int = 256,
        port: int = 0,
        model: str = "small",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.tls = tls
        self.overrides, self.alter = overrides or {}, alter
        self.window, self.model = window, model
        self.is_over = threading.Event()
        self.num_running, self.num_drafts = 0, 0
        self.lock = threading.Lock()
        self.state: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.server_address[1]}"

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shakes hands in the thread of the connection, so that one bad client holds up nobody."""
        if self.tls is not None:
            request = self.tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)
        if self.tls is not None:
            request.close()

    def count(self, name: str) -> int:
        """How often this was called with the name, this time included."""
        with self.lock:
            self.state[name] = self.state.get(name, 0) + 1
            return self.state[name]

    def __enter__(self) -> SmallService:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.is_over.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SmallService

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.close_connection = True
        override = self.server.overrides.get(self.path)
        if override is not None and override(self, {}):
            return
        if self.path == "/health":
            self.answer(200, None)
        elif self.path == "/v1/models":
            model = {"id": self.server.model, "object": "model", "max_model_len": self.server.window}
            value = {"object": "list", "data": [model]}
            if self.server.alter:
                self.server.alter(self.path, {}, value)
            self.answer(200, value)
        elif self.path == "/metrics":
            self.raw(
                f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{}} {self.server.num_running}\n"
            )
        else:
            self.refuse(404, f"there is no {self.path}")

    def do_POST(self) -> None:
        self.close_connection = True
        content = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            request = json.loads(content)
        except ValueError:
            request = {"broken": True}
        override = self.server.overrides.get(self.path)
        if override is not None and override(self, request):
            return
        with self.server.lock:
            self.server.num_running += 1
        try:
            self.generate(request)
        finally:
            with self.server.lock:
                self.server.num_running -= 1

    def generate(self, request: Body) -> None:
        if "broken" in request:
            return self.refuse(400, "the body is no JSON")
        if request.get("model") != self.server.model:
            return self.refuse(404, f"the model {request.get('model')} does not exist")
        max_tokens = request.get("max_tokens", 16)
        if not isinstance(max_tokens, int):
            return self.refuse(422, "max_tokens is no number")
        is_chat = self.path.endswith("/chat/completions")
        prompt = request["messages"][-1]["content"] if is_chat else request["prompt"]
        if len(prompt) + max_tokens > self.server.window and not is_chat:
            return self.refuse(
                400, f"the window is {self.server.window} tokens, {len(prompt)} + {max_tokens} are too many"
            )
        choices = [choice_of(request, prompt, index, is_chat) for index in range(request.get("n", 1))]
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": sum(choice.pop("num_tokens") for choice in choices),
        }
        if request.get("stream"):
            chunks = chunks_of(choices, is_chat)
            chunks.append({"choices": [], "usage": usage})
            if self.server.alter:
                self.server.alter(self.path, request, chunks)
            return self.stream(chunks)
        value = {"choices": choices, "usage": usage}
        if self.server.alter:
            self.server.alter(self.path, request, value)
        return self.answer(200, value)

    def refuse(self, status: int, message: str) -> None:
        self.answer(status, {"error": {"message": message, "type": "invalid_request_error"}})

    def answer(self, status: int, value: Any) -> None:
        self.raw("" if value is None else json.dumps(value), status)

    def raw(
        self, text: str, status: int = 200, kind: str = "application/json", length: int | None = None
    ) -> None:
        """A body as it is; `length` is announced instead of the true one."""
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)

    def stream(self, chunks: list[Any]) -> None:
        """Events until the client is gone; a text among the chunks is sent as it is."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in [*chunks, "data: [DONE]\n\n"]:
            content = (chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}\n\n").encode()
            if content:
                self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def well(handler: Handler, request: Body) -> bool:
    """Answers 200."""
    handler.answer(200, {})
    return True


def choice_of(request: Body, prompt: str, index: int, is_chat: bool) -> Body:
    extra = f"{request.get('seed')}-{index}" if request.get("temperature") else ""
    max_tokens = request["max_tokens"]
    if not is_chat:
        letters = text_of(
            prompt, extra, max_tokens if request.get("ignore_eos") else min(max_tokens, NUM_LETTERS)
        )
        reason = "length" if len(letters) == max_tokens else "stop"
        for mark in request.get("stop") or []:
            if mark in letters:
                letters, reason = letters[: letters.index(mark)], "stop"
        return {
            "index": index,
            "finish_reason": reason,
            "num_tokens": max(1, len(letters)),
            **scored(request, prompt, letters),
        }
    message: Body = {"role": "assistant", "content": text_of(prompt, extra, min(max_tokens, NUM_LETTERS))}
    if (request.get("chat_template_kwargs") or {}).get("enable_thinking"):
        message["reasoning"] = "They ask something simple."
    reason = "stop"
    if request.get("tools"):
        function = {"name": request["tools"][0]["function"]["name"], "arguments": '{"city": "Paris"}'}
        message |= {"content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]}
        reason = "tool_calls"
    num_tokens = min(max_tokens, len(message["content"] or "") + 20)
    return {"index": index, "finish_reason": reason, "message": message, "num_tokens": num_tokens}


def scored(request: Body, prompt: str, letters: str) -> Body:
    """Text and log-probabilities of a completion."""
    fields: Body = {"text": letters}
    if request.get("echo"):
        fields = {"text": prompt + letters}
        values = [None] + [-1.5] * (len(prompt) + len(letters) - 1)
        fields["logprobs"] = {"token_logprobs": values}
    if request.get("prompt_logprobs") is not None:
        fields["prompt_logprobs"] = [None] + [{"7": {"logprob": -0.5}}] * (len(prompt) - 1)
    return fields


def chunks_of(choices: list[Body], is_chat: bool) -> list[Any]:
    """Choices in pieces of three letters."""
    chunks: list[Any] = []
    for choice in choices:
        index = choice["index"]
        parts: list[Body] = []
        message = choice.get("message", {})
        for name, text in (("reasoning", message.get("reasoning")), ("content", message.get("content"))):
            parts += [{name: text[place : place + 3]} for place in range(0, len(text or ""), 3)]
        for call in message.get("tool_calls", []):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            pieces = [{"name": name, "arguments": arguments[:5]}, {"arguments": arguments[5:]}]
            parts += [{"tool_calls": [{"index": 0, "function": piece}]} for piece in pieces]
        if not is_chat:
            text = choice["text"]
            chunks += [
                {"choices": [{"index": index, "text": text[place : place + 3]}]}
                for place in range(0, len(text), 3)
            ]
        chunks += [{"choices": [{"index": index, "delta": part}]} for part in parts]
        end: Body = {"delta": {}} if is_chat else {"text": ""}
        chunks.append({"choices": [{"index": index, **end, "finish_reason": choice["finish_reason"]}]})
    return chunks


def main(overrides: dict[str, Override] | None = None) -> int:
    """Serves until SIGTERM or SIGINT."""
    port, model, window = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    is_over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: is_over.set())
    with SmallService(overrides, port=port, model=model, window=window):
        is_over.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
