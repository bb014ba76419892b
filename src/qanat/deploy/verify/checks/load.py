"""Requests beside each other, the same request again, and clients that hang up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from qanat.deploy.verify.check import COMPLETIONS, Context, check
from qanat.deploy.verify.checks.generation import PROMPT
from qanat.deploy.verify.checks.streaming import STORY
from qanat.deploy.verify.metrics import RUNNING
from qanat.deploy.verify.replies import Reply
from qanat.deploy.verify.service import Fault, shown

MAX_TOKENS = 64
NUM_REPEATS = 4
NUM_BESIDE = 4
LONG_TOKENS = 4096
MIN_LONG_TOKENS = 16
POLL_S = 0.25
MAX_WAIT_S = 20.0


@check("determinism", "same request, same text", needs=("model", "completion"))
async def determinism(context: Context) -> str:
    """The same greedy request one after another, then beside others."""
    body = context.completion(STORY, MAX_TOKENS)
    alone = [(await context.service.reply(COMPLETIONS, body)).choice.text for _ in range(NUM_REPEATS)]
    others = [context.completion(f"Number {n}: {STORY}", MAX_TOKENS) for n in range(NUM_BESIDE)]
    mixed = [one for pair in zip([body] * NUM_BESIDE, others, strict=True) for one in pair]
    replies = await asyncio.gather(*(context.service.reply(COMPLETIONS, one) for one in mixed))
    beside = [reply.choice.text for reply in replies[::2]]
    if len(set(alone)) > 1:
        raise Fault("not_deterministic", f"{len(set(alone))} texts in {NUM_REPEATS} times, one after another")
    if set(beside) != set(alone):
        raise Fault(
            "not_deterministic_beside_others", f"{len(set(beside + alone))} texts, alone and beside others"
        )
    return f"{NUM_REPEATS} times alone, {NUM_BESIDE} times beside others"


@check("concurrency", "streams beside each other", needs=("model", "completion"))
async def concurrency(context: Context) -> str:
    """All of --concurrency streams must come to their end."""
    count = context.settings.concurrency
    started = time.monotonic()
    bodies = [context.completion(f"{number}. {STORY}", MAX_TOKENS) for number in range(1, count + 1)]
    results = await asyncio.gather(
        *(context.service.streamed(COMPLETIONS, body) for body in bodies), return_exceptions=True
    )
    seconds = time.monotonic() - started
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Fault):
            raise result
    faults = [result for result in results if isinstance(result, Fault)]
    if faults:
        commonest = Counter(fault.symptom for fault in faults).most_common(1)[0][0]
        fault = next(fault for fault in faults if fault.symptom == commonest)
        raise Fault("streams_failed", f"{len(faults)} of {count} streams failed: {fault.seen}", fault.status)
    replies = [result for result in results if isinstance(result, Reply)]
    texts = [reply.choice.text for reply in replies]
    context.texts += [("concurrency", text) for text in texts]
    if not all(texts):
        raise Fault("streams_failed", f"{texts.count('')} of {count} streams brought no text")
    num_tokens = sum(int((reply.usage or {}).get("completion_tokens", 0)) for reply in replies)
    slowest = max(reply.first_text_s or 0.0 for reply in replies)
    return f"{count} streams, {num_tokens / seconds:.0f} tokens/s, first text within {slowest:.2f} s"


@check("abort", "a client hangs up", needs=("model", "completion"))
async def abort(context: Context) -> str:
    """A stream is left in its middle; the service goes on and lets go of the request."""
    before = (await context.metrics()).get(RUNNING)
    room = context.max_model_len or LONG_TOKENS
    max_tokens = max(MIN_LONG_TOKENS, min(LONG_TOKENS, room // 2))
    body = context.completion(STORY, max_tokens, ignore_eos=True)
    async with context.service.stream(COMPLETIONS, body) as stream:
        async for reply in stream:
            if reply.num_text_chunks >= 2:
                break
    try:
        await context.service.reply(COMPLETIONS, context.completion(PROMPT, 4))
    except Fault as fault:
        raise Fault("dead_after_abort", fault.seen, fault.status) from None
    if before is None:
        return f"goes on answering; it exports no {RUNNING}"
    started = time.monotonic()
    while (now := (await context.metrics()).get(RUNNING, 0.0)) > before:
        if time.monotonic() - started > MAX_WAIT_S:
            raise Fault("abort_not_seen", shown(f"{now:g} requests run, {before:g} before"))
        await asyncio.sleep(POLL_S)
    return f"goes on answering, running requests: {now:g}"
