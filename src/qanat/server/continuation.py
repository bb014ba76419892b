"""How a rendered conversation ends, and the cut after a final message that is to be continued.

A template may strip a message's text, put marks around it, or leave it out. So a mark is put at the end of the text
before rendering: what is rendered up to it is the prompt, white space at the text's end included.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from enum import Enum
from typing import Any

from qanat.core.errors import InvalidRequestError
from qanat.server.messages import Message

FIELD = "continue_final_message"
_THINK_END = "</think>"


class Ending(Enum):
    """REPLY: with what the template puts before a reply. HISTORY: without it. CONTINUE: within the final message."""

    REPLY = "reply"
    HISTORY = "history"
    CONTINUE = "continue"


def ending_of(add_generation_prompt: bool | None, continue_final_message: bool) -> Ending:
    """What a request's two fields ask for.

    Raises:
        InvalidRequestError: they contradict each other.
    """
    if continue_final_message and add_generation_prompt:
        raise InvalidRequestError(
            f"add_generation_prompt begins a new message, {FIELD} goes on with the last one; leave one of them out.",
            param="add_generation_prompt",
        )
    if continue_final_message:
        return Ending.CONTINUE
    return Ending.HISTORY if add_generation_prompt is False else Ending.REPLY


def check_final_message(messages: Sequence[Message]) -> None:
    """Refuses conversations whose final message is no text of the assistant's.

    Raises:
        InvalidRequestError: saying why.
    """
    final = messages[-1]
    if final["role"] != "assistant":
        raise _refused(f"the final message must be the assistant's, got role {final['role']}.")
    if final.get("tool_calls"):
        raise _refused("the final message must not have tool_calls; they end a message.")


def marked(messages: Sequence[Message], mark: str) -> list[Message]:
    """The messages with a mark at the end of the final one's text."""
    *others, final = messages
    content = final["content"]
    if isinstance(content, str):
        return [*others, {**final, "content": content + mark}]
    parts = [*content[:-1], {"type": "text", "text": _last_text(content) + mark}]
    return [*others, {**final, "content": parts}]


def new_mark() -> str:
    """A text that occurs nowhere else."""
    return f"qanat-end-{secrets.token_hex(16)}"


def cut_at(text: str, mark: str, messages: Sequence[Message]) -> str:
    """The prompt: what stands before the mark.

    Args:
        text: rendered from `marked` messages.
        mark: the same.
        messages: without it.

    Raises:
        InvalidRequestError: the template does not show the final message, or shows something else.
    """
    prompt, found, _ = text.rpartition(mark)
    # A template may sort out the thoughts before this tag; what follows it is the answer that goes on.
    wanted = _last_text(messages[-1]["content"]).rpartition(_THINK_END)[2].lstrip()
    if not found:
        raise _refused("the chat template does not show the final message's text.")
    if not prompt.endswith(wanted):
        raise _refused("the chat template does not show the final message's text as it stands.")
    return prompt


def _last_text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return str(content[-1]["text"]) if content else ""


def _refused(why: str) -> InvalidRequestError:
    return InvalidRequestError(f"{FIELD} is not possible here: {why}", param=FIELD)
