"""A small engine over real sockets that does what a test tells it; `python -m` runs it as a process of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from qanat.router.http.exchange import Downstream, respond
from qanat.router.http.front import Front
from qanat.router.model import Call

EVENT = (
    b'data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"%b",'
    b'"choices":[{"index":0,"text":"x","finish_reason":%b}]}\n\n'
)


@dataclass
class TinyEngine:
    """Completions of a few tokens.

    Attributes:
        num_tokens: of each answer.
        health: what /health answers; 0 for silence.
        is_frozen: nothing is answered at all, while connections are taken.
        gate: completions wait for it before the first token, where it is set to a closed one.
        pace: between tokens, in seconds.
        num_computed: what its counters say.
        calls: those of /v1/completions, in the order they came.
        num_metrics: times that its figures were read.
        num_left: of these, clients that left before the end.
    """

    model: str = "tiny"
    num_tokens: int = 3
    health: int = 200
    is_frozen: bool = False
    gate: asyncio.Event | None = None
    pace: float = 0.0
    status: int = 200
    num_computed: int = 0
    calls: list[Call] = field(default_factory=list)
    num_left: int = 0
    num_metrics: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __call__(self, call: Call, downstream: Downstream) -> None:
        if self.is_frozen or (call.path == "/health" and not self.health):
            await asyncio.Event().wait()
        if call.path == "/health":
            respond(downstream, self.health, b'{"status":"told"}')
        elif call.path == "/v1/models":
            card = {"id": self.model, "object": "model", "owned_by": "vllm", "max_model_len": 4096}
            respond(downstream, 200, msgspec.json.encode({"object": "list", "data": [card]}))
        elif call.path == "/metrics":
            self.num_metrics += 1
            respond(
                downstream,
                200,
                b'vllm:generation_tokens_total{m="1"} %d\n' % self.num_computed,
                b"text/plain",
            )
        elif call.path in ("/v1/completions", "/v1/chat/completions", "/v1/embeddings"):
            await self.complete(call, downstream)
        else:
            respond(downstream, 404, b'{"error":{"message":"no such path here"}}')

    async def complete(self, call: Call, downstream: Downstream) -> None:
        self.calls.append(call)
        fields: dict[str, Any] = msgspec.json.decode(call.body)
        try:
            is_probe = fields.get("prompt") == "1"
            if self.gate is not None and not is_probe:
                await self.gate.wait()
            if self.status != 200:
                respond(downstream, self.status, b'{"error":{"message":"told to fail"}}')
            elif fields.get("stream"):
                await self.stream(downstream)
            else:
                usage = {
                    "prompt_tokens": 2,
                    "completion_tokens": self.num_tokens,
                    "total_tokens": 2 + self.num_tokens,
                }
                sent = fields.get("kv_transfer_params") or {}
                choices = [{"index": 0, "text": "x" * self.num_tokens, "finish_reason": "length"}]
                body = {"id": "cmpl-1", "model": self.model, "choices": choices, "usage": usage}
                if sent.get("do_remote_decode"):
                    body["kv_transfer_params"] = {"do_remote_prefill": True, "do_remote_decode": False}
                respond(downstream, 200, msgspec.json.encode(body))
        except asyncio.CancelledError:
            self.num_left += 1
            raise

    async def stream(self, downstream: Downstream) -> None:
        downstream.start(200, [(b"content-type", b"text/event-stream")])
        for number in range(self.num_tokens):
            reason = b'"length"' if number == self.num_tokens - 1 else b"null"
            downstream.write(EVENT % (self.model.encode(), reason))
            self.num_computed += 1
            await asyncio.sleep(self.pace)
        downstream.write(b"data: [DONE]\n\n")
        downstream.end()

    @asynccontextmanager
    async def served(self, port: int = 0) -> AsyncIterator[TinyEngine]:
        """Listens for as long as the context lasts; then its streams break."""
        front = Front(self)
        self.port = await front.listen("127.0.0.1", port)
        try:
            yield self
        finally:
            await front.close(0)


async def main(arguments: list[str]) -> None:
    """Serves until it is killed; prints its port."""
    engine = TinyEngine(num_tokens=int(arguments[0]), pace=float(arguments[1]))
    async with engine.served(int(arguments[2]) if len(arguments) > 2 else 0):
        sys.stdout.write(f"{engine.port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
