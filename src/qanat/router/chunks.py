"""The few fields of a streamed chunk that the relay acts upon; the rest of it is passed over undecoded."""

from __future__ import annotations

from typing import Any

import msgspec


class Delta(msgspec.Struct):
    """What a chat chunk adds to its choice. Engines differ, so that little is demanded of the values."""

    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None


class TextChoice(msgspec.Struct):
    """News of one choice, of any engine."""

    index: int = 0
    text: str | None = None
    delta: Delta | None = None
    finish_reason: Any = None
    stop_reason: Any = None


class TextChunk(msgspec.Struct):
    """One event of any engine; `error` in place of choices where something went wrong."""

    id: Any = ""
    created: Any = 0
    model: Any = ""
    choices: list[TextChoice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class TokenChoice(msgspec.Struct):
    """News of one choice of an engine that was asked for token ids."""

    index: int = 0
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class TokenChunk(msgspec.Struct):
    """One event of an engine that was asked for token ids."""

    choices: list[TokenChoice] | None = None
    prompt_token_ids: list[int] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


_TEXT = msgspec.json.Decoder(TextChunk)
_TOKENS = msgspec.json.Decoder(TokenChunk)


def text_chunk(data: bytes) -> TextChunk | None:
    """The chunk in an event's payload; None if it is none."""
    try:
        return _TEXT.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def token_chunk(data: bytes) -> TokenChunk | None:
    """The chunk in an event's payload; None if it is none."""
    try:
        return _TOKENS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


_GONE_CODES = frozenset(("engine_dead", "engine_restarting", "unavailable", "shutting_down"))


def is_engine_gone(error: Any) -> bool:
    """True if an error event says that the engine failed, and not the request: another engine can go on with it."""
    if not isinstance(error, dict):
        return False
    code = error.get("code")
    if isinstance(code, int):
        return code >= 500
    return code in _GONE_CODES
