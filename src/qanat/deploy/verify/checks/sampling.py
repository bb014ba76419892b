"""Temperature, stop strings, several choices, seeds."""

from __future__ import annotations

from qanat.deploy.verify.check import COMPLETIONS, Context, Skip, check
from qanat.deploy.verify.checks.generation import check_counts
from qanat.deploy.verify.checks.streaming import STORY
from qanat.deploy.verify.service import Fault, shown

MAX_TOKENS = 32
SHOWN_CHARS = 60


@check("temperature", "temperature above 0", needs=("model", "completion"))
async def temperature(context: Context) -> str:
    """Sampling works at all: with prefill and decode apart it did not in some versions."""
    body = context.completion(STORY, MAX_TOKENS, top_p=0.95) | {"temperature": 0.8}
    try:
        reply = await context.service.reply(COMPLETIONS, body)
    except Fault as fault:
        raise Fault("sampling_fails", fault.seen, fault.status) from None
    context.texts.append(("temperature", reply.choice.text))
    check_counts(reply, MAX_TOKENS)
    return f'"{shown(reply.choice.text, SHOWN_CHARS)}"'


@check("stop", "stop strings", needs=("model", "completion"))
async def stop(context: Context) -> str:
    """Text ends before the stop string, streamed and not."""
    whole = (await context.service.reply(COMPLETIONS, context.completion(STORY, MAX_TOKENS))).choice.text
    mark = _mark(whole)
    body = context.completion(STORY, MAX_TOKENS, stop=[mark])
    for way in (context.service.reply, context.service.streamed):
        reply = await way(COMPLETIONS, body)
        text, reason = reply.choice.text, reply.choice.finish_reason
        if mark in text:
            raise Fault("stop_in_text", f"{mark!r} is in the answer {shown(text, SHOWN_CHARS)!r}")
        if text != whole[: whole.index(mark)]:
            raise Fault("stop_differs", f'"{shown(text, 40)}" before {mark!r}, finish_reason {reason}')
        if reason != "stop":
            raise Fault("wrong_end", f"finish_reason is {reason} at a stop string")
    return f"ends before {mark!r}"


def _mark(text: str) -> str:
    """Some letters inside of a text, over the border of two words where there is one."""
    middle = text.find(" ", len(text) // 3)
    start = max(1, (middle if middle > 1 else len(text) // 2) - 2)
    mark = text[start : start + 5].rstrip("\ufffd")
    if len(mark.strip()) < 2 or "\ufffd" in mark or text.index(mark) == 0:
        raise Skip("the answer is too short to cut it")
    return mark


@check("choices", "n and seed", needs=("model", "completion"))
async def choices(context: Context) -> str:
    """Two choices, twice with the same seed."""
    body = context.completion(STORY, MAX_TOKENS, n=2, seed=20240601) | {"temperature": 1.0}
    first, second = [await context.service.reply(COMPLETIONS, body) for _ in range(2)]
    if len(first.choices) != 2:
        raise Fault("wrong_choices", f"{len(first.choices)} instead of 2")
    check_counts(first, MAX_TOKENS)
    texts = [[choice.text for _, choice in sorted(reply.choices.items())] for reply in (first, second)]
    if texts[0] != texts[1]:
        raise Fault("seed_differs", f'"{shown(texts[0][0], 40)}" and "{shown(texts[1][0], 40)}"')
    return "2 choices, equal for the same seed"
