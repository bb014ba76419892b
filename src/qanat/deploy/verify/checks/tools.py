"""Do tool calls come as tool calls, with arguments that fit?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from qanat.deploy.verify.check import CHAT, Context, check
from qanat.deploy.verify.replies import Reply
from qanat.deploy.verify.service import Fault, shown

QUESTION = "What is the weather in Paris? Use the tool."
TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "name of the city"}},
            "required": ["city"],
        },
    },
}
MARKS = ("<tool_call>", "<function=", "</tool_call>")
MAX_TOKENS = 256
MAX_THINKING_TOKENS = 768
SHOWN_CHARS = 60


@check("tool_auto", "tool call, tool_choice auto", needs=("model", "chat"))
async def tool_auto(context: Context) -> str:
    """The model may call the tool."""
    body = context.chat(QUESTION, MAX_TOKENS, tools=[TOOL], tool_choice="auto")
    return _judge(await _ask(context, body), is_required=False)


@check("tool_thinking", "tool call after thinking", needs=("model", "chat"))
async def tool_thinking(context: Context) -> str:
    """Reasoning and call must be told apart."""
    body = context.chat(QUESTION, MAX_THINKING_TOKENS, thinks=True, tools=[TOOL], tool_choice="auto")
    return _judge(await _ask(context, body), is_required=False)


@check("tool_required", "tool call, tool_choice required", needs=("model", "chat"))
async def tool_required(context: Context) -> str:
    """The model must call the tool."""
    body = context.chat(QUESTION, MAX_TOKENS, tools=[TOOL], tool_choice="required")
    return _judge(await _ask(context, body), is_required=True)


@check("tool_streamed", "streamed tool call", needs=("model", "chat"))
async def tool_streamed(context: Context) -> str:
    """Pieces of a call must give the same as the whole."""
    body = context.chat(QUESTION, MAX_TOKENS, tools=[TOOL], tool_choice="auto")
    return _judge(await context.service.streamed(CHAT, body), is_required=False)


async def _ask(context: Context, body: Mapping[str, Any]) -> Reply:
    try:
        return await context.service.reply(CHAT, body)
    except Fault as fault:
        if fault.symptom == "refused":
            raise Fault("tools_refused", fault.seen, fault.status) from None
        raise


def _judge(reply: Reply, *, is_required: bool) -> str:
    choice = reply.choice
    for name, text in (("content", choice.text), (choice.reasoning_field, choice.reasoning)):
        if any(mark in text for mark in MARKS):
            raise Fault("tool_call_in_text", f"{name}: {shown(text, SHOWN_CHARS)}")
    if not choice.tool_calls:
        symptom = "no_required_tool_call" if is_required else "no_tool_call"
        raise Fault(
            symptom, f'finish_reason {choice.finish_reason}, content "{shown(choice.text, SHOWN_CHARS)}"'
        )
    for call in choice.tool_calls:
        _check_arguments(call.name, call.arguments)
    call = choice.tool_calls[0]
    return shown(f"{call.name}({call.arguments})", SHOWN_CHARS)


def _check_arguments(name: str, arguments: str) -> None:
    """Raises a fault unless the call fits `TOOL`."""
    if name != TOOL["function"]["name"]:
        raise Fault("wrong_tool_call", f"it calls {name!r}, which is none of the tools")
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        raise Fault(
            "wrong_tool_call", f"the arguments are no JSON: {shown(arguments, SHOWN_CHARS)}"
        ) from None
    if not isinstance(values, dict) or not isinstance(values.get("city"), str):
        raise Fault("wrong_tool_call", f"no city in the arguments {shown(arguments, SHOWN_CHARS)}")
