"""Recordings made up piece by piece, with exact times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from qanat.bench.client.recording import Recording
from qanat.bench.online.answer import Answer, read_answer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
MS = 1_000_000
START_NS = 5_000 * MS


def framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(**fields: Any) -> bytes:
    return framed(b"data: " + json.dumps(fields).encode() + b"\n\n")


def text_event(text: str, **fields: Any) -> bytes:
    return event(choices=[{"index": 0, "text": text}], **fields)


def usage(done: int, prompt: int = 5) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": done}


END = framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def answer_of(
    pieces: Sequence[tuple[float, bytes]],
    *,
    index: int = 0,
    intended_ms: float = 0.0,
    sent_ms: float = 0.0,
    failure: str = "",
    has_text: bool = True,
) -> Answer:
    """The answer of pieces that came so many milliseconds after the start."""
    recording = Recording(index, START_NS + round(intended_ms * MS))
    recording.sent_ns = START_NS + round(sent_ms * MS)
    recording.failure = failure
    recording.end_ns = START_NS + round((pieces[-1][0] if pieces else sent_ms) * MS)
    timed = [(START_NS + round(at * MS), data) for at, data in pieces]
    return read_answer(recording, timed, START_NS, has_text=has_text)


def streamed(times_ms: Sequence[float], tokens: int = 1, **more: Any) -> Answer:
    """An answer whose chunks, of so many tokens each, came at these times; the server tells the counts at the end."""
    pieces = [(0.0, HEAD), *((at, text_event(" a" * tokens)) for at in times_ms)]
    last = times_ms[-1]
    pieces += [(last, event(choices=[], usage=usage(tokens * len(times_ms)))), (last, END)]
    return answer_of(pieces, **more)
