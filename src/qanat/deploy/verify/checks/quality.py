"""Is what it says text at all, do drafts help, and is it alive after all this?"""

from __future__ import annotations

import re

from qanat.deploy.verify.check import CHAT, COMPLETIONS, Context, Skip, check
from qanat.deploy.verify.checks.generation import PROMPT
from qanat.deploy.verify.metrics import NUM_ACCEPTED_TOKENS, NUM_DRAFT_TOKENS
from qanat.deploy.verify.service import Fault, refusal, shown

REQUEST = "Name the days of the week, then the months of the year, then the four seasons."
MAX_TOKENS = 192
MIN_CHARS = 48
MAX_PERIOD_CHARS = 40
"""Longer periods are lists and refrains more often than loops."""
FLOOD_CHARS = 3
MIN_DRAFT_TOKENS = 50
NO_TEXT = re.compile("[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f]")


@check("repetition", "no loops, no garbage", needs=("model", "chat"))
async def repetition(context: Context) -> str:
    """Looks at one longer answer and at all answers before, those under load included."""
    reply = await context.service.reply(CHAT, context.chat(REQUEST, MAX_TOKENS))
    context.texts.append(("repetition", reply.choice.text))
    loops = []
    for name, text in context.texts:
        if what := flood(text):
            raise Fault("garbage", f"{name}: {what}")
        if what := loop(text):
            loops.append(f"{name}: {what}")
    if loops:
        raise Fault("loop", f"{len(loops)} of {len(context.texts)} answers: {loops[0]}")
    return f"{len(context.texts)} answers looked at"


def flood(text: str) -> str:
    """What makes a text garbage: one sign over and over, or letters that are none; empty if nothing does."""
    odd = len(NO_TEXT.findall(text))
    if len(text) >= MIN_CHARS and odd > len(text) // 10:
        return f"{odd} of {len(text)} letters are no text"
    start, period = _tail(text)
    if period and len(period.strip()) <= FLOOD_CHARS and len(text) - start >= max(MIN_CHARS, len(text) // 2):
        return f"{shown(repr(period), 20)} {(len(text) - start) // len(period)} times"
    return ""


def loop(text: str) -> str:
    """What a text repeats at its end until it breaks off; empty if nothing."""
    start, period = _tail(text)
    times = (len(text) - start) // len(period) if period else 0
    if times >= 4 and len(text) - start >= max(2 * MIN_CHARS, len(text) // 2):
        return f"{shown(repr(period), 60)} {times} times at the end"
    return ""


def _tail(text: str) -> tuple[int, str]:
    """Where the longest periodic end of a text begins, and its period."""
    text = text.rstrip()
    best, period = len(text), ""
    for length in range(1, min(MAX_PERIOD_CHARS, len(text) // 2) + 1):
        start = len(text) - length
        while start > 0 and text[start - 1] == text[start - 1 + length]:
            start -= 1
        if len(text) - start >= 2 * length and start < best:
            best, period = start, text[start : start + length]
    return best, period


@check("drafts", "speculation accepts drafts", needs=("model",))
async def drafts(context: Context) -> str:
    """Accepted of drafted tokens since the beginning of these checks."""
    now = await context.metrics()
    if not now:
        raise Skip("no /metrics")
    drafted, accepted = (
        now.get(name, 0.0) - context.counters.get(name, 0.0)
        for name in (NUM_DRAFT_TOKENS, NUM_ACCEPTED_TOKENS)
    )
    if drafted < MIN_DRAFT_TOKENS:
        raise Skip(f"{drafted:g} draft tokens since the start: no speculation, or too few requests")
    if accepted <= 0:
        raise Fault("no_draft_accepted", f"0 of {drafted:g} draft tokens")
    return f"{accepted:g} of {drafted:g} draft tokens ({accepted / drafted:.0%})"


@check("still_ready", "alive after all this", needs=("model", "completion"))
async def still_ready(context: Context) -> str:
    """The service still completes a text and calls itself healthy."""
    await context.service.reply(COMPLETIONS, context.completion(PROMPT, 4))
    answer = await context.service.get("/health")
    if answer.status not in (200, 404, 405):
        fault = refusal(answer.status, answer.body)
        raise Fault("sick_after_checks", f"/health: {fault.seen}", answer.status)
    return f"/health {answer.status}"
