"""Is a stream well formed, and does it say what the whole answer says?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qanat.deploy.verify.check import CHAT, COMPLETIONS, Context, check
from qanat.deploy.verify.checks.generation import QUESTION, check_counts
from qanat.deploy.verify.service import Fault, shown

STORY = "Once upon a time there was a small village"
MAX_TOKENS = 48
MIN_TOKENS_FOR_CHUNKS = 24
"""Speculation brings several tokens in a chunk, but not so many in one."""
SHOWN_CHARS = 60


@check("stream_completion", "streamed completion", needs=("model", "completion"))
async def stream_completion(context: Context) -> str:
    """Events of /v1/completions."""
    return await _compare(context, COMPLETIONS, context.completion(STORY, MAX_TOKENS))


@check("stream_chat", "streamed chat", needs=("model", "chat"))
async def stream_chat(context: Context) -> str:
    """Events of /v1/chat/completions, with thinking where the model thinks."""
    return await _compare(context, CHAT, context.chat(QUESTION, MAX_TOKENS * 4, thinks=True))


async def _compare(context: Context, path: str, body: Mapping[str, Any]) -> str:
    whole = await context.service.reply(path, body)
    streamed = await context.service.streamed(path, body)
    if streamed.usage is None:
        raise Fault("no_usage_in_stream", "stream_options.include_usage brought no usage")
    check_counts(streamed, int(body["max_tokens"]))
    text = streamed.choice.reasoning + streamed.choice.text
    if not text:
        raise Fault("no_text", "the stream brought no text")
    num_tokens = streamed.count("completion_tokens")
    if streamed.num_text_chunks == 1 and num_tokens >= MIN_TOKENS_FOR_CHUNKS:
        raise Fault("stream_in_one_piece", f"{num_tokens} tokens came as one event")
    for name, one, other in (
        ("reasoning", streamed.choice.reasoning, whole.choice.reasoning),
        ("text", streamed.choice.text, whole.choice.text),
    ):
        # Engines differ in the white space around reasoning, which nobody reads.
        if one.strip() != other.strip():
            place = next(
                (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
                min(len(one), len(other)),
            )
            seen = f'{name} differs from letter {place}: "{shown(one[place:], 30)}" and "{shown(other[place:], 30)}"'
            raise Fault("stream_differs", seen)
    first = f", the first after {streamed.first_text_s:.2f} s" if streamed.first_text_s is not None else ""
    return f"{num_tokens} tokens in {streamed.num_text_chunks} events{first}"
