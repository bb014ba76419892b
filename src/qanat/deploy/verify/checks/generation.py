"""Does it complete a text, and answer with and without thinking?"""

from __future__ import annotations

from qanat.deploy.verify.check import CHAT, COMPLETIONS, Context, check
from qanat.deploy.verify.replies import Reply
from qanat.deploy.verify.service import Fault, shown

PROMPT = "The capital of France is"
QUESTION = "What is 17 + 25?"
MAX_ANSWER_TOKENS = 64
MAX_THINKING_TOKENS = 512
TAGS = ("<think>", "</think>")
SHOWN_CHARS = 60


@check("completion", "/v1/completions")
async def completion(context: Context) -> str:
    """A greedy completion with right counts."""
    reply = await context.service.reply(COMPLETIONS, context.completion(PROMPT, 16))
    context.texts.append(("completion", reply.choice.text))
    check_counts(reply, 16)
    if not reply.choice.text:
        raise Fault("no_text", f"finish_reason {reply.choice.finish_reason}")
    return f'"{shown(reply.choice.text, SHOWN_CHARS)}"'


def check_counts(reply: Reply, max_tokens: int) -> None:
    """Compares usage and finish_reason with what was asked for.

    Raises:
        Fault: they cannot be true.
        UsageError: there is no usage.
    """
    prompt_tokens, completion_tokens = reply.count("prompt_tokens"), reply.count("completion_tokens")
    reasons = {choice.finish_reason for choice in reply.choices.values()}
    if prompt_tokens == 0 or not 0 < completion_tokens <= max_tokens * len(reply.choices):
        raise Fault(
            "wrong_usage", f"{prompt_tokens} prompt and {completion_tokens} output tokens of {max_tokens}"
        )
    if not reasons <= {"stop", "length"}:
        raise Fault("wrong_end", f"finish_reason {', '.join(sorted(map(str, reasons)))}")


@check("chat", "chat without thinking")
async def chat(context: Context) -> str:
    """A chat completion with enable_thinking false."""
    reply = await context.service.reply(CHAT, context.chat(QUESTION, MAX_ANSWER_TOKENS))
    choice = reply.choice
    context.texts.append(("chat", choice.text))
    check_counts(reply, MAX_ANSWER_TOKENS)
    if choice.reasoning:
        raise Fault("thinks_unasked", f"{choice.reasoning_field}: {shown(choice.reasoning, SHOWN_CHARS)}")
    if any(tag in choice.text for tag in TAGS):
        raise Fault("thinking_in_answer", f'"{shown(choice.text, SHOWN_CHARS)}"')
    if not choice.text.strip():
        raise Fault("no_text", f"finish_reason {choice.finish_reason}")
    return f'"{shown(choice.text, SHOWN_CHARS)}"'


@check("thinking", "chat with thinking")
async def thinking(context: Context) -> str:
    """A chat completion with enable_thinking true: the reasoning has a field of its own."""
    reply = await context.service.reply(CHAT, context.chat(QUESTION, MAX_THINKING_TOKENS, thinks=True))
    choice = reply.choice
    context.texts.append(("thinking", choice.reasoning + choice.text))
    check_counts(reply, MAX_THINKING_TOKENS)
    if any(tag in choice.text for tag in TAGS):
        raise Fault("thinking_in_answer", f'content begins with "{shown(choice.text, SHOWN_CHARS)}"')
    if not choice.reasoning:
        raise Fault("no_reasoning", f'content: "{shown(choice.text, SHOWN_CHARS)}"')
    if choice.finish_reason == "length":
        return f"{choice.reasoning_field}, still thinking after {MAX_THINKING_TOKENS} tokens"
    if not choice.text.strip():
        raise Fault(
            "no_answer_after_thinking", f"{len(choice.reasoning)} letters of {choice.reasoning_field}"
        )
    return f'{choice.reasoning_field}, then "{shown(choice.text, SHOWN_CHARS)}"'
