"""A server of the OpenAI API that answers what a test tells it to, for faults that a sound server does not have."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[Mapping[str, Any], int], tuple[int, Any]]
"""Of a request's body, and how often the same was sent before: status, and the JSON of the answer (or bytes)."""


@dataclass
class Stub:
    """The running server.

    Attributes:
        url: its root.
        bodies: what was sent, in order.
        keys: Authorization headers, in order.
    """

    url: str
    script: Script
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def chat(content: str | None, finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    """A chat completion."""
    return {
        "choices": [{"message": {"content": content, **message}, "finish_reason": finish_reason}],
        "usage": {"completion_tokens": 5},
    }


def completion(text: str, finish_reason: str = "stop") -> dict[str, Any]:
    """A completion."""
    return {"choices": [{"text": text, "finish_reason": finish_reason}]}


def question_of(body: Mapping[str, Any]) -> str:
    """What was asked last."""
    return str(body["messages"][-1]["content"] if "messages" in body else body["prompt"])


@contextlib.contextmanager
def stub_server(script: Script) -> Iterator[Stub]:
    """Serves until the end of the context."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, {"data": [{"id": "stub-model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with stub.lock:
                count = sum(question_of(one) == question_of(body) for one in stub.bodies)
                stub.bodies.append(body)
                stub.keys.append(self.headers.get("authorization"))
            self._send(*stub.script(body, count))

        def _send(self, status: int, value: Any) -> None:
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # of the 5 by default, a few clients at once wait a second for their turn

    server = Server(("127.0.0.1", 0), Handler)
    stub = Stub(f"http://127.0.0.1:{server.server_address[1]}", script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
