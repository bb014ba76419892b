"""One message of the OpenAI API, a chunk of a stream or a whole answer, as far as a benchmark looks at it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

ValueT = TypeVar("ValueT")


class PromptDetails(msgspec.Struct, gc=False):
    """Details of the prompt's tokens."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """Numbers of tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


class Said(msgspec.Struct, gc=False):
    """What a chat's answer says."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None


class Choice(msgspec.Struct, gc=False):
    """One of the answers to a prompt."""

    text: str | None = None
    delta: Said | None = None
    message: Said | None = None
    finish_reason: str | None = None
    token_ids: list[Any] | None = None


class Message(msgspec.Struct, gc=False):
    """A chunk, or a whole answer."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(Message)


def read_message(data: bytes) -> Message | None:
    """Reads a JSON object, fields of other types than the API says as if they were not there; None if it is none."""
    try:
        return _DECODER.decode(data)
    except msgspec.ValidationError:
        value = read_object(data)
        return _tolerant(value) if value is not None else None
    except (msgspec.DecodeError, RecursionError):
        return None


def read_object(data: bytes) -> dict[str, Any] | None:
    """Reads a JSON object; None if it is none."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _tolerant(value: dict[str, Any]) -> Message:
    """A message without the fields that have another type."""
    choices = _field(value, "choices", list)
    usage = _field(value, "usage", dict)
    return Message(
        choices=[_choice(one) for one in choices if isinstance(one, dict)] if choices is not None else None,
        usage=_usage(usage) if usage is not None else None,
        error=value.get("error"),
    )


def _choice(value: dict[str, Any]) -> Choice:
    delta, message = _field(value, "delta", dict), _field(value, "message", dict)
    return Choice(
        text=_field(value, "text", str),
        delta=_said(delta) if delta is not None else None,
        message=_said(message) if message is not None else None,
        finish_reason=_field(value, "finish_reason", str),
        token_ids=_field(value, "token_ids", list),
    )


def _said(value: dict[str, Any]) -> Said:
    texts = {name: _field(value, name, str) for name in ("content", "reasoning_content", "reasoning")}
    return Said(**texts, tool_calls=value.get("tool_calls"))


def _usage(value: dict[str, Any]) -> Usage:
    details = _field(value, "prompt_tokens_details", dict)
    return Usage(
        prompt_tokens=_field(value, "prompt_tokens", int),
        completion_tokens=_field(value, "completion_tokens", int),
        prompt_tokens_details=PromptDetails(_field(details, "cached_tokens", int))
        if details is not None
        else None,
    )


def _field(value: dict[str, Any], name: str, kind: type[ValueT]) -> ValueT | None:
    found = value.get(name)
    return found if type(found) is kind else None
