"""A server of the OpenAI API that answers by a script and writes down when it did: standard library only.

python -m tests.support.delayed_server prints its port and serves until it is stopped. A request's body has the script,
which a benchmark passes on with --extra-body:

    script: [[wait_ms, num_tokens], ...]   a chunk each; of several scripts the request's number takes one
    usage: "running", "final" or "none"    where token counts are told; "final" unless given
    chunk_bytes: N                         no write is longer
    status: N                              an error instead of a stream
    ending: "cut" or "never"               instead of the end mark
    text: TEXT                             of each token

GET /record gives the moments, of the clock that all processes share, at which each request was there and each chunk
was written.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from tests.support.delayed_metrics import Figures

WORD = " word"


class Record:
    """What has happened, by the request's id; and the server's figures."""

    def __init__(self) -> None:
        self.requests: dict[str, dict[str, Any]] = {}
        self.figures = Figures()

    def begin(self, request_id: str) -> dict[str, Any]:
        """A new request's entry."""
        entry: dict[str, Any] = {"received_ns": time.monotonic_ns(), "written_ns": [], "tokens": []}
        self.requests[request_id] = entry
        return entry


async def serve_connection(
    record: Record, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answers one request after the other."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            method, path, _ = first.split(" ")
            if method == "GET" or path == "/tokenize":
                _reply(writer, 200, *_fact(record, path, body))
            else:
                entry = record.begin(headers.get("x-request-id", ""))
                if not await answer(record, entry, json.loads(body), headers.get("x-request-id", ""), writer):
                    return
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def _fact(record: Record, path: str, body: bytes) -> tuple[str, str]:
    if path == "/metrics":
        return record.figures.text(), "text/plain"
    if path == "/tokenize":
        words = json.loads(body)["prompt"].split()
        return json.dumps({"tokens": [1000 + sum(word.encode()) for word in words]}), "application/json"
    if path == "/v1/models":
        return json.dumps({"data": [{"id": "scripted"}]}), "application/json"
    return json.dumps(record.requests), "application/json"


async def answer(
    record: Record, entry: dict[str, Any], body: dict[str, Any], request_id: str, writer: asyncio.StreamWriter
) -> bool:
    """Follows the script; False if the connection is to end."""
    number = int("0" + "".join(filter(str.isdigit, request_id.rpartition("-")[2])))
    plans = body.get("scripts") or [body]
    plan = {**body, **plans[number % len(plans)]}
    if "probe" in request_id:
        plan |= {"script": [[0, 1]], "status": 200, "ending": ""}
    if plan.get("status", 200) != 200:
        _reply(
            writer,
            plan["status"],
            json.dumps({"error": {"message": "as the script says"}}),
            "application/json",
        )
        return True
    prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
    num_prompt = len(prompt) if isinstance(prompt, list) else len(prompt.split())
    record.figures.begin(num_prompt)
    if not body.get("stream"):
        await asyncio.sleep(sum(wait for wait, _ in plan["script"]) / 1e3)
        _reply(writer, 200, json.dumps(_whole(plan, num_prompt)), "application/json")
        return True
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    due_s, done = time.monotonic(), 0
    for wait_ms, count in plan["script"]:
        due_s += wait_ms / 1e3
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        done += count
        entry["written_ns"].append(time.monotonic_ns())
        entry["tokens"].append(count)
        await _event(writer, plan, _chunk(plan, "messages" in body, count, done, num_prompt))
    record.figures.end(done, plan.get("num_drafts", 0))
    if plan.get("ending") == "cut":
        return False
    if plan.get("ending") == "never":
        await asyncio.sleep(3600)
    if plan.get("usage", "final") == "final":
        await _event(writer, plan, {"choices": [], "usage": _usage(num_prompt, done)})
    await _write(writer, plan, b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")
    return True


def _usage(num_prompt: int, done: int) -> dict[str, int]:
    return {"prompt_tokens": num_prompt, "completion_tokens": done, "total_tokens": num_prompt + done}


def _text(plan: dict[str, Any], first: int, count: int) -> str:
    text = plan.get("text", WORD)
    return "".join(text.replace("#", str(place)) for place in range(first, first + count))


def _chunk(plan: dict[str, Any], is_chat: bool, count: int, done: int, num_prompt: int) -> dict[str, Any]:
    text = _text(plan, done - count, count)
    said: dict[str, Any] = {"delta": {"content": text}} if is_chat else {"text": text}
    chunk: dict[str, Any] = {"choices": [{"index": 0, "finish_reason": None, **said}]}
    if plan.get("usage") == "running":
        chunk["usage"] = _usage(num_prompt, done)
    return chunk


def _whole(plan: dict[str, Any], num_prompt: int) -> dict[str, Any]:
    count = sum(count for _, count in plan["script"])
    choice = {"index": 0, "text": _text(plan, 0, count), "finish_reason": "length"}
    return {"choices": [choice], "usage": _usage(num_prompt, count)}


async def _event(writer: asyncio.StreamWriter, plan: dict[str, Any], value: dict[str, Any]) -> None:
    await _write(writer, plan, b"data: " + json.dumps(value).encode() + b"\n\n")


async def _write(writer: asyncio.StreamWriter, plan: dict[str, Any], data: bytes) -> None:
    framed = b"%x\r\n%s\r\n" % (len(data), data)
    size = plan.get("chunk_bytes", len(framed))
    for at in range(0, len(framed), size):
        writer.write(framed[at : at + size])
        if size < len(framed):
            await asyncio.sleep(0)


def _reply(writer: asyncio.StreamWriter, status: int, text: str, kind: str) -> None:
    content = text.encode()
    writer.write(
        f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n".encode()
        + content
    )


async def main() -> None:
    """Serves until the process is ended."""
    record = Record()
    server = await asyncio.start_server(
        lambda reader, writer: serve_connection(record, reader, writer),
        "127.0.0.1",
        0,
        backlog=1024,
        limit=2**22,
    )
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
