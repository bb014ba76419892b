"""Engines made from the descriptions of vLLM's API and of vLLM-Ascend's two connectors, with faults on demand.

The model says a script: where its prompt ends with a beginning of the script, it goes on after that. The answer's
fingerprint is that of every field of the request, so that a request which was changed on its way shows.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

SCRIPT = ["The", " answer", " is", " €", " 42", ",", " said", " Ümit", ".", " Done"]
PULL_KEYS = ("remote_block_ids", "remote_engine_id", "remote_host", "remote_port", "remote_request_id")
KV_OFF = ("kv_transfer_params", "request_id")


@dataclass
class Fault:
    """What goes wrong with one request for text.

    Attributes:
        kind: "die" (cut the connection after `num_events`), "end" (end the answer there), "stall", "recompute", "error"
            (an event that says the engine is dead), "status", "empty" (200 without a body), "refuse" (a request never
            answered), "cut" (the connection, once the prompt would be computed).
        num_bytes: of the next event, sent before the cut.
        status: for "status".
    """

    kind: str
    num_events: int = 0
    num_bytes: int = 0
    status: int = 500


@dataclass
class Asked:
    """A request that came."""

    path: str
    headers: dict[str, str]
    fields: dict[str, Any]


class Cut(Exception):
    """The connection is to be cut now."""


@dataclass
class StubEngine:
    """One engine.

    Attributes:
        role: "whole", "prefill" or "decode".
        faults: of the requests for text to come, first come first served.
        asked: requests for text that came.
        num_open: requests for text that run.
        num_left: requests whose client went away before the end.
        held: prompts whose cache is kept for a decoder, by remote request id.
        is_frozen: its health does not answer, nor what it has begun with if `prefill_s` is long.
        ending: in place of how the last token of a stream ends; for engines that send the end apart.
        step_s: time for a token.
        prefill_s: time for a prompt.
    """

    role: str = "whole"
    script: list[str] = field(default_factory=lambda: list(SCRIPT))
    faults: list[Fault] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    num_open: int = 0
    num_left: int = 0
    held: dict[str, str] = field(default_factory=dict)
    step_s: float = 0.0
    prefill_s: float = 0.0
    keeps_params: bool = True
    ends_at_once: bool = False
    ending: bytes = b""
    is_frozen: bool = False
    port: int = 0
    _pushed: dict[str, asyncio.Event] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # The transport.

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError, Cut):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length.group(1)) if length else 0)
                await self._watched(head.decode("latin-1"), body, reader, writer)
        writer.close()

    async def _watched(
        self, head: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answers, and stops as soon as the client leaves."""
        method, path, _ = head.split(" ", 2)
        if method != "POST":
            if self.is_frozen:
                await asyncio.sleep(3600)
            content = {"data": [{"id": "m", "object": "model"}]} if path == "/v1/models" else {}
            _whole(writer, 200, json.dumps(content).encode())
            return
        lines = (line.partition(": ") for line in head.split("\r\n")[1:])
        headers = {name.lower(): value for name, _, value in lines}
        self.num_open += 1
        work = asyncio.ensure_future(self._answer(path, headers, json.loads(body), writer))
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            else:
                self.num_left += 1
                raise Cut
        finally:
            self.num_open -= 1
            work.cancel()
            leaving.cancel()
            await asyncio.gather(work, leaving, return_exceptions=True)

    # The engine.

    async def _answer(
        self, path: str, headers: dict[str, str], fields: dict[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        self.asked.append(Asked(path, headers, fields))
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None and fault.kind == "refuse":
            await asyncio.sleep(3600)
        if fault is not None and fault.kind in ("status", "empty"):
            is_empty = fault.kind == "empty"
            body = (
                b"" if is_empty else json.dumps({"error": {"message": "stub", "code": fault.status}}).encode()
            )
            _whole(writer, 200 if is_empty else fault.status, body)
            return
        problem = _problem(fields)
        if problem:
            _whole(writer, 400, json.dumps({"error": {"message": problem, "code": 400}}).encode())
            return
        reply_id = ("chatcmpl-" if "messages" in fields else "cmpl-") + headers.get("x-request-id", "none")
        await asyncio.sleep(self.prefill_s)
        if fault is not None and fault.kind == "cut":
            raise Cut
        if self.role == "prefill":
            await self._prefill(reply_id, fields, writer)
            return
        if self.role == "decode" and not await self._take_cache(reply_id, path, fields, writer):
            return
        if fields.get("stream"):
            await self._stream(reply_id, fields, fault, writer)
        else:
            whole = self._whole_answer(reply_id, fields)
            if fault is not None and fault.kind == "recompute":
                whole["choices"][0].update(finish_reason="stop", stop_reason="recomputed")
            data = json.dumps(whole).encode()
            if fault is not None and fault.kind == "die":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(data) + data[:7])
                await writer.drain()
                raise Cut
            _whole(writer, 200, data)

    async def _prefill(self, reply_id: str, fields: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        params = fields.get("kv_transfer_params") or {}
        whole = self._whole_answer(reply_id, fields)
        if params.get("remote_host") is not None:
            # Layer by layer to where the decoder said; without this key the real scheduler dies.
            _ = params["remote_cached_tokens"]
            decoder = _BY_PORT[params["remote_port"]]
            decoder.pushed(params["request_id"], _prompt(fields))
        elif params.get("do_remote_decode") and self.keeps_params and not self.ends_at_once:
            self.held[reply_id] = _prompt(fields)
            whole["kv_transfer_params"] = {
                "do_remote_prefill": True,
                "do_remote_decode": False,
                "remote_block_ids": [[1, 2], [3]],
                "remote_engine_id": f"engine-{self.port}",
                "remote_request_id": reply_id,
                "remote_host": "127.0.0.1",
                "remote_port": self.port,
            }
        if self.ends_at_once:
            whole["choices"][0]["finish_reason"] = "stop"
        _whole(writer, 200, json.dumps(whole).encode())

    async def _take_cache(
        self, reply_id: str, path: str, fields: dict[str, Any], writer: asyncio.StreamWriter
    ) -> bool:
        """Fetches the prompt's cache, or has it pushed; False if that failed and was answered."""
        params = fields.get("kv_transfer_params")
        if params is None:
            return True
        prompt: str | None
        if "metaserver" in params:
            name = reply_id if "messages" in fields else f"{reply_id}-0"
            prompt = await self._called_for(name, params["metaserver"])
        else:
            if any(params.get(key) is None for key in PULL_KEYS):
                _whole(writer, 500, b'{"error":{"message":"Got invalid KVTransferParams"}}')
                return False
            prompt = _BY_PORT[params["remote_port"]].held.pop(params["remote_request_id"], None)
        if prompt != _prompt(fields):
            _whole(writer, 500, b'{"error":{"message":"the cache is not that of the prompt"}}')
            return False
        return True

    async def _called_for(self, name: str, url: str) -> str:
        event = self._pushed[name] = asyncio.Event()
        asking = {
            "token_ids": [],
            "request_id": name,
            "do_remote_prefill": False,
            "do_remote_decode": True,
            "remote_block_ids": [[7, 8], [1]],
            "remote_block_size": [512, 512],
            "remote_engine_id": f"engine-{self.port}",
            "remote_host": "127.0.0.1",
            "remote_port": self.port,
            "remote_cached_tokens": 0,
        }
        async with httpx.AsyncClient(timeout=30, verify=False) as client:
            asker = asyncio.ensure_future(client.post(url, json=asking))
            try:
                await event.wait()
            finally:
                if not event.is_set():
                    asker.cancel()
                await asyncio.gather(asker, return_exceptions=True)
        return self.held.pop(name)

    def pushed(self, name: str, prompt: str) -> None:
        """A prefiller has written a prompt's cache here."""
        self.held[name] = prompt
        self._pushed[name].set()

    def _tokens(self, fields: dict[str, Any]) -> tuple[list[str], int, str]:
        """The tokens to come, how many of the script's the prompt has already, and why they end."""
        prompt = _prompt(fields)
        done = next(n for n in range(len(self.script), -1, -1) if prompt.endswith("".join(self.script[:n])))
        limit = fields.get("max_completion_tokens") or fields.get("max_tokens")
        if limit is None:
            limit = 1000 if "messages" in fields else 16
        rest = self.script[done:]
        for stop in fields.get("stop") or []:
            text = "".join(self.script)
            if stop in text:
                kept = text[: text.index(stop)]
                rest = [
                    token
                    for i, token in enumerate(rest)
                    if len("".join(self.script[: done + i + 1])) <= len(kept)
                ]
        return rest[:limit], done, "length" if limit < len(rest) else "stop"

    def _usage(self, fields: dict[str, Any], num_prior: int, num_tokens: int) -> dict[str, int]:
        num_prompt = len(_base_prompt(fields).split()) + num_prior
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_tokens,
            "total_tokens": num_prompt + num_tokens,
        }

    def _whole_answer(self, reply_id: str, fields: dict[str, Any]) -> dict[str, Any]:
        tokens, prior, reason = self._tokens(fields)
        choices = []
        for index in range(fields.get("n") or 1):
            text = (_prompt(fields) if fields.get("echo") else "") + "".join(tokens)
            choice: dict[str, Any] = {
                "index": index,
                "logprobs": _scores(fields, tokens),
                "finish_reason": reason,
            }
            if "messages" in fields:
                choice["message"] = {"role": "assistant", "content": text}
            else:
                choice["text"] = text
            choices.append({**choice, "stop_reason": None})
        return {
            "id": reply_id,
            "object": "chat.completion" if "messages" in fields else "text_completion",
            "created": 1700000000 + self.port,
            "model": "m",
            "choices": choices,
            "usage": self._usage(fields, prior, len(tokens) * (fields.get("n") or 1)),
            "system_fingerprint": fingerprint(fields),
        }

    async def _stream(
        self, reply_id: str, fields: dict[str, Any], fault: Fault | None, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        for position, event in enumerate(self._events(reply_id, fields)):
            if self.ending:
                event = re.sub(rb'"finish_reason":"[a-z]+","stop_reason":null', self.ending, event)
            if fault is not None and position == fault.num_events:
                if fault.kind == "recompute":
                    event = self._given_back(event)
                    fault = None
                else:
                    await self._fail(fault, event, writer)
            _chunk(writer, event)
            await writer.drain()
            await asyncio.sleep(self.step_s)
        writer.write(b"0\r\n\r\n")

    def _given_back(self, event: bytes) -> bytes:
        chunk = json.loads(event.removeprefix(b"data: "))
        for choice in chunk["choices"]:
            choice.update(finish_reason="stop", stop_reason="recomputed")
            if "delta" in choice:
                choice["delta"] = {"content": ""}
            else:
                choice["text"] = ""
        return _event(chunk)

    async def _fail(self, fault: Fault, event: bytes, writer: asyncio.StreamWriter) -> None:
        if fault.kind == "stall":
            await asyncio.sleep(3600)
        if fault.kind == "error":
            _chunk(
                writer, _event({"error": {"message": "EngineCore died", "code": 500}}) + b"data: [DONE]\n\n"
            )
        elif fault.num_bytes:
            _chunk(writer, event[: fault.num_bytes])
        if fault.kind in ("end", "error"):
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        raise Cut

    def _events(self, reply_id: str, fields: dict[str, Any]) -> list[bytes]:
        is_chat = "messages" in fields
        tokens, prior, reason = self._tokens(fields)
        kind = "chat.completion.chunk" if is_chat else "text_completion"
        shared = {"id": reply_id, "object": kind, "created": 1700000000 + self.port, "model": "m"}
        events = []
        num_choices = fields.get("n") or 1
        if is_chat:
            for index in range(num_choices):
                delta = {"role": "assistant", "content": ""}
                opening = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
                events.append(_event({**shared, "choices": [opening]}))
        for position, token in enumerate(tokens):
            for index in range(num_choices):
                text = (_prompt(fields) if fields.get("echo") and not position else "") + token
                is_last = position == len(tokens) - 1
                choice = {
                    "index": index,
                    **({"delta": {"content": text}} if is_chat else {"text": text}),
                    "logprobs": _scores(fields, [token]),
                    "finish_reason": reason if is_last else None,
                    "stop_reason": None,
                }
                events.append(_event({**shared, "choices": [choice]}))
        if (fields.get("stream_options") or {}).get("include_usage"):
            usage = self._usage(fields, prior, len(tokens) * num_choices)
            events.append(_event({**shared, "choices": [], "usage": usage}))
        return [*events, b"data: [DONE]\n\n"]


_BY_PORT: dict[int, StubEngine] = {}


@asynccontextmanager
async def stubs(*engines: StubEngine) -> AsyncIterator[None]:
    """The engines listen as long as the context lasts."""
    servers = []
    for engine in engines:
        server = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
        engine.port = server.sockets[0].getsockname()[1]
        _BY_PORT[engine.port] = engine
        servers.append(server)
    try:
        yield
    finally:
        for server in servers:
            server.close()


def fingerprint(fields: dict[str, Any]) -> str:
    """Of all that the request asks for."""
    kept = {name: value for name, value in fields.items() if name not in KV_OFF}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]


def _problem(fields: dict[str, Any]) -> str:
    limit = fields.get("max_completion_tokens") or fields.get("max_tokens")
    if limit is not None and (fields.get("min_tokens") or 0) > limit:
        return "min_tokens must be at most max_tokens"
    if fields.get("stream_options") and not fields.get("stream"):
        return "stream_options needs stream"
    return ""


def _prompt(fields: dict[str, Any]) -> str:
    prompt = fields.get("prompt")
    if "messages" in fields:
        ended = "" if fields.get("continue_final_message") else "\n"
        tools = json.dumps(fields.get("tools") or "")
        return tools + "\n".join(f"{m['role']}: {m['content']}" for m in fields["messages"]) + ended
    return prompt if isinstance(prompt, str) else json.dumps(prompt)


def _base_prompt(fields: dict[str, Any]) -> str:
    if "messages" in fields and fields.get("continue_final_message"):
        return "\n".join(f"{m['role']}: {m['content']}" for m in fields["messages"][:-1])
    prompt = _prompt(fields)
    if "messages" not in fields:
        done = next(n for n in range(len(SCRIPT), -1, -1) if prompt.endswith("".join(SCRIPT[:n])))
        return prompt.removesuffix("".join(SCRIPT[:done]))
    return prompt


def _scores(fields: dict[str, Any], tokens: list[str]) -> Any:
    if fields.get("logprobs") in (None, False):
        return None
    return {"tokens": tokens, "token_logprobs": [-0.5] * len(tokens)}


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def _whole(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    writer.write(
        b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (status, len(body), body)
    )
