"""Checks a chat request's messages and brings them into the one shape that templates read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from qanat.core.errors import InvalidRequestError

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
CONTENT_PART_TYPES = frozenset({"text", "input_text", "output_text", "refusal"})

Message = dict[str, Any]

_CONTINUE = "Use the request's continue_final_message."
_REFUSED_KEYS = {
    "function_call": "Use tool_calls, which replaced it.",
    "audio": "Only text is read and written.",
    "prefix": _CONTINUE,
    "partial": _CONTINUE,
}
"""Keys of messages that would change the prompt and that no template reads."""


def normalise_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages as templates expect them.

    "developer" becomes "system"; absent and null content becomes empty text; content parts become a list of
    `{"type": "text", "text": ...}`; a tool call's arguments become an object; reasoning stands in
    `reasoning_content`. Fields that are not known here are passed through: a template may read them.

    Raises:
        InvalidRequestError: a message has the wrong shape; `param` is its path.
    """
    if not messages:
        raise InvalidRequestError("messages must hold at least one message.", param="messages")
    return [_normalise(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _normalise(message: Mapping[str, Any], path: str) -> Message:
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        known = ", ".join(sorted(ROLES))
        raise InvalidRequestError(f"{path}.role must be one of {known}, got {role!r}.", param=f"{path}.role")
    result: Message = {name: value for name, value in message.items() if value is not None}
    result["role"] = "system" if role == "developer" else role
    result["content"] = _content(message.get("content"), f"{path}.content")
    if role == "user" and message.get("content") is None:
        raise InvalidRequestError(f"{path}.content is required.", param=f"{path}.content")
    for name in ("reasoning", "reasoning_content"):
        if name in result and not isinstance(result[name], str):
            raise InvalidRequestError(f"{path}.{name} must be a string.", param=f"{path}.{name}")
    if "reasoning" in result:
        result.setdefault("reasoning_content", result["reasoning"])
    for name, why in _REFUSED_KEYS.items():
        if result.get(name):
            raise InvalidRequestError(f"{path}.{name} is not supported: {why}", param=f"{path}.{name}")
    if "tool_calls" in result:
        result["tool_calls"] = _tool_calls(result["tool_calls"], f"{path}.tool_calls")
    return result


def _content(content: object, path: str) -> str | list[dict[str, str]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequestError(f"{path} must be a string or a list of parts.", param=path)
    return [{"type": "text", "text": _part_text(part, f"{path}[{i}]")} for i, part in enumerate(content)]


def _part_text(part: object, path: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise InvalidRequestError(f"{path} must be an object.", param=path)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in CONTENT_PART_TYPES:
        raise InvalidRequestError(
            f"{path}.type is {kind!r}; only text parts are in this version.", param=f"{path}.type"
        )
    text = part.get("refusal" if kind == "refusal" else "text")
    if not isinstance(text, str):
        raise InvalidRequestError(f"{path}.text must be a string.", param=f"{path}.text")
    return text


def _tool_calls(calls: object, path: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise InvalidRequestError(f"{path} must be a list.", param=path)
    return [_tool_call(call, f"{path}[{i}]") for i, call in enumerate(calls)]


def _tool_call(call: object, path: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise InvalidRequestError(f"{path}.function must be an object.", param=f"{path}.function")
    if not isinstance(function.get("name"), str):
        raise InvalidRequestError(f"{path}.function.name must be a string.", param=f"{path}.function.name")
    arguments = _arguments(function.get("arguments"), f"{path}.function.arguments")
    return {**call, "function": {**function, "arguments": arguments}}


def _arguments(arguments: object, path: str) -> dict[str, Any]:
    """Clients send the arguments as JSON text, templates iterate over an object."""
    if arguments is None or arguments == "":
        return {}
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequestError(f"{path} is not valid JSON: {error}.", param=path) from None
    if not isinstance(arguments, dict):
        raise InvalidRequestError(f"{path} must be a JSON object.", param=path)
    return arguments
